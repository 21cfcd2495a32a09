// A streaming server that knows the truth: when each request reached this machine's kernel, and when
// each token was handed to it, on CLOCK_MONOTONIC. What a client reports is held against that.
//
//   gcc -O2 -o truthserver truthserver.c -lm                     plain HTTP
//   gcc -O2 -DTLS -o truthserver truthserver.c -lm -lssl -lcrypto    with --cert FILE also HTTPS
//
// One thread: epoll for what comes, a heap of deadlines for what is due. Loopback only.
//   POST /v1/...   a stream of --tokens tokens ("max_tokens" in the body wins), the first after --ttft-ms
//                  (plus up to --jitter-ms), then one every --itl-ms; --per-chunk K puts K tokens into
//                  one event; --step lets all streams tick together, as a batch of a real engine does
//   GET /truth     one line per finished request: id,received_ns,first_ns,second_ns,last_ns,tokens,chunks
//   GET /reset     forget them
// The moment of a token is read right before the write() that carries it.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
static SSL_CTX *tls;
#endif

typedef int64_t ns;

static int port, tokens = 128, per_chunk = 1, step;
static double ttft_ms = 200, itl_ms = 20, jitter_ms;

static ns now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// CLOCK_REALTIME minus CLOCK_MONOTONIC: the kernel stamps packets with the former.
static ns wall_offset(void) {
  ns best = 1LL << 40, offset = 0;
  for (int i = 0; i < 20; i++) {
    struct timespec t;
    ns before = now();
    clock_gettime(CLOCK_REALTIME, &t);
    ns after = now();
    if (after - before < best) {
      best = after - before;
      offset = t.tv_sec * 1000000000LL + t.tv_nsec - (before + after) / 2;
    }
  }
  return offset;
}

static double uniform(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (state >> 11) / 9007199254740992.0;
}

// ---- what is remembered of a request ----

struct truth {
  char id[48];
  ns received, first, second, last;
  int tokens, chunks;
};
static struct truth *log_;
static size_t logged, log_room;

static void remember(const struct truth *t) {
  if (logged == log_room) log_ = realloc(log_, (log_room = log_room ? 2 * log_room : 4096) * sizeof *log_);
  log_[logged++] = *t;
}

// ---- connections ----

struct conn {
  int fd, writable_wanted, streaming;
  uint32_t serial;                     // tells a deadline of this connection from one of its forerunner
  char in[16384];
  size_t in_len;
  char *out;                           // what a full socket did not take
  size_t out_len, out_room;
  ns received, base, itl;              // base: when the first token is due
  int chunks, left;                    // chunks written, tokens to come
  struct truth truth;
  char event[768];                     // the event of a plain chunk, with its HTTP framing
  int event_len;
#ifdef TLS
  SSL *ssl;
  int shaking;                         // the handshake is not over
#endif
};
static struct conn *conns[65536];
static int poller;
static ns offset;

static void watch(struct conn *c, int writable) {
  if (c->writable_wanted == writable) return;
  c->writable_wanted = writable;
  struct epoll_event e = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.fd = c->fd};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
}

static void drop(struct conn *c) {
#ifdef TLS
  if (c->ssl) SSL_free(c->ssl);
#endif
  close(c->fd);
  conns[c->fd] = NULL;
  free(c->out);
  free(c);
}

static ssize_t raw_write(struct conn *c, const char *data, size_t n) {
#ifdef TLS
  if (c->ssl) {
    int written = SSL_write(c->ssl, data, n);
    return written > 0 ? written : (errno = EAGAIN, -1);
  }
#endif
  return send(c->fd, data, n, MSG_NOSIGNAL);
}

static void put(struct conn *c, const char *data, size_t n) {
  ssize_t written = 0;
  if (!c->out_len && (written = raw_write(c, data, n)) < 0) written = 0;
  if ((size_t)written == n) return;
  if (c->out_len + n > c->out_room) c->out = realloc(c->out, c->out_room = 2 * (c->out_len + n));
  memcpy(c->out + c->out_len, data + written, n - written);
  c->out_len += n - written;
  watch(c, 1);
}

static void flush(struct conn *c) {
  ssize_t written = raw_write(c, c->out, c->out_len);
  if (written <= 0) return;
  memmove(c->out, c->out + written, c->out_len -= written);
  if (!c->out_len) watch(c, 0);
}

// ---- deadlines ----

struct deadline { ns at; int fd; uint32_t serial; };
static struct deadline *heap;
static size_t due, heap_room;

static void push(ns at, struct conn *c) {
  if (due == heap_room) heap = realloc(heap, (heap_room = heap_room ? 2 * heap_room : 4096) * sizeof *heap);
  size_t i = due++;
  for (; i && heap[(i - 1) / 2].at > at; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = (struct deadline){at, c->fd, c->serial};
}

static void replace_top(struct deadline d) {
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < due; i = child) {
    if (child + 1 < due && heap[child + 1].at < heap[child].at) child++;
    if (heap[child].at >= d.at) break;
    heap[i] = heap[child];
  }
  heap[i] = d;
}

static void pop(void) {
  struct deadline last = heap[--due];
  if (due) replace_top(last);
}

// ---- the stream ----

static int framed(char *to, const char *json, int n) {  // one event in one HTTP chunk
  return sprintf(to, "%x\r\ndata: %.*s\n\n\r\n", n + 8, n, json);
}

static int content(const struct conn *c, char *to, int k, const char *finish) {
  char json[8192];
  int n = sprintf(json, "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1764561600,"
                  "\"model\":\"truth\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", c->truth.id);
  for (int i = 0; i < k; i++) n += sprintf(json + n, " tok");
  n += sprintf(json + n, "\"},\"logprobs\":null,\"finish_reason\":%s}]}", finish);
  return framed(to, json, n);
}

static ns next_due(const struct conn *c) {
  ns at = c->base + (ns)c->chunks * per_chunk * c->itl;
  ns tick = c->itl * per_chunk;
  return step && tick ? (at + tick - 1) / tick * tick : at;
}

static void finish(struct conn *c) {
  char json[512], end[1024];
  int n = sprintf(json, "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":"
                  "{\"prompt_tokens\":32,\"completion_tokens\":%d,\"total_tokens\":%d}}",
                  c->truth.id, c->truth.tokens, 32 + c->truth.tokens);
  int m = framed(end, json, n);
  m += sprintf(end + m, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  put(c, end, m);
  c->truth.chunks = c->chunks;
  remember(&c->truth);
  c->streaming = 0;
}

static void write_token(struct conn *c) {
  char buffer[9000];
  int k = c->left < per_chunk ? c->left : per_chunk, last = c->left <= per_chunk;
  const char *data = c->event;
  int n = c->event_len;
  if (last) n = content(c, buffer, k, "\"length\""), data = buffer;
  else if (!n) n = c->event_len = content(c, c->event, k, "null");
  ns moment = now();
  put(c, data, n);
  if (c->chunks == 0) c->truth.first = moment;
  if (c->chunks == 1) c->truth.second = moment;
  c->truth.last = moment;
  c->chunks++;
  c->left -= k;
  if (last) finish(c);
}

// ---- requests ----

static void reply(struct conn *c, const char *type, const char *body, size_t n) {
  char head[200];
  put(c, head, sprintf(head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", type, n));
  put(c, body, n);
}

static void tell_truth(struct conn *c) {
  char *csv = malloc(100 + logged * 160);
  size_t n = sprintf(csv, "id,received_ns,first_ns,second_ns,last_ns,tokens,chunks\n");
  for (size_t i = 0; i < logged; i++) {
    struct truth *t = &log_[i];
    n += sprintf(csv + n, "%s,%ld,%ld,%ld,%ld,%d,%d\n", t->id, t->received, t->first, t->second, t->last,
                 t->tokens, t->chunks);
  }
  reply(c, "text/csv", csv, n);
  free(csv);
}

static void begin_stream(struct conn *c, const char *body) {
  static unsigned served;
  const char *id = strcasestr(c->in, "\r\nx-request-id:"), *max = strstr(body, "\"max_tokens\"");
  memset(&c->truth, 0, sizeof c->truth);
  if (!id || sscanf(id + 15, " %47[^\r]", c->truth.id) != 1) sprintf(c->truth.id, "%u", served);
  served++;
  c->truth.received = c->received;
  c->left = tokens;
  if (max) sscanf(max + 12, " : %d", &c->left);
  c->truth.tokens = c->left = c->left < 1 ? 1 : c->left;
  c->chunks = c->event_len = 0;
  c->streaming = 1;
  c->itl = itl_ms * 1e6;
  c->base = c->received + (ns)((ttft_ms + jitter_ms * uniform()) * 1e6);
  static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                             "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
  put(c, head, sizeof head - 1);
  push(next_due(c), c);
}

static void answer(struct conn *c) {  // all whole requests in the buffer
  char *end, *length;
  while (!c->streaming && (c->in[c->in_len] = 0, end = strstr(c->in, "\r\n\r\n"))) {
    size_t head = end + 4 - c->in, body = 0;
    if ((length = strcasestr(c->in, "\r\ncontent-length:")) && length < end) body = atol(length + 17);
    if (c->in_len < head + body) return;
    if (!strncmp(c->in, "POST ", 5)) begin_stream(c, end + 4);
    else if (!strncmp(c->in, "GET /truth", 10)) tell_truth(c);
    else if (!strncmp(c->in, "GET /reset", 10)) logged = 0, reply(c, "text/plain", "ok", 2);
    else reply(c, "application/json", "{\"data\":[{\"id\":\"truth\"}]}", 25);
    memmove(c->in, c->in + head + body, c->in_len -= head + body);
  }
}

static ssize_t receive(struct conn *c, void *to, size_t room, int flags) {  // and the kernel's stamp
  char control[64];
  struct iovec part = {to, room};
  struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t n = recvmsg(c->fd, &m, flags);
  c->received = now();
  struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
  if (h && h->cmsg_type == SCM_TIMESTAMPNS) {
    struct timespec *t = (struct timespec *)CMSG_DATA(h);
    c->received = t->tv_sec * 1000000000LL + t->tv_nsec - offset;
  }
  return n;
}

static int take(struct conn *c) {  // 0: the client is gone
  ssize_t n;
#ifdef TLS
  if (c->ssl) {
    if (c->shaking) {
      int r = SSL_accept(c->ssl);
      if (r != 1) return SSL_get_error(c->ssl, r) == SSL_ERROR_WANT_READ;
      c->shaking = 0;
    }
    char peeked;
    receive(c, &peeked, 1, MSG_PEEK);  // only for the stamp
    n = SSL_read(c->ssl, c->in + c->in_len, sizeof c->in - 1 - c->in_len);
    if (n <= 0) return SSL_get_error(c->ssl, n) == SSL_ERROR_WANT_READ;
    c->in_len += n;
    return 1;
  }
#endif
  n = receive(c, c->in + c->in_len, sizeof c->in - 1 - c->in_len, 0);
  if (n <= 0) return n < 0 && errno == EAGAIN;
  c->in_len += n;
  return 1;
}

static void welcome(int listener) {
  static uint32_t serial;
  int fd, one = 1;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    struct conn *c = conns[fd] = calloc(1, sizeof *c);
    c->fd = fd;
    c->serial = ++serial;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
#ifdef TLS
    if (tls) SSL_set_fd(c->ssl = SSL_new(tls), fd), c->shaking = 1;
#endif
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
  }
}

static void options(int argc, char **argv) {
  static struct option known[] = {{"port", 1, 0, 'p'}, {"ttft-ms", 1, 0, 't'}, {"itl-ms", 1, 0, 'i'},
    {"tokens", 1, 0, 'n'}, {"jitter-ms", 1, 0, 'j'}, {"per-chunk", 1, 0, 'k'}, {"step", 0, &step, 1},
    {"cert", 1, 0, 'c'}, {0}};
  for (int o; (o = getopt_long(argc, argv, "", known, NULL)) != -1;) switch (o) {
    case 0: break;
    case 'p': port = atoi(optarg); break;
    case 't': ttft_ms = atof(optarg); break;
    case 'i': itl_ms = atof(optarg); break;
    case 'n': tokens = atoi(optarg); break;
    case 'j': jitter_ms = atof(optarg); break;
    case 'k': per_chunk = fmin(fmax(atoi(optarg), 1), 100); break;
#ifdef TLS
    case 'c':
      tls = SSL_CTX_new(TLS_server_method());
      SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
      if (SSL_CTX_use_certificate_chain_file(tls, optarg) == 1 &&
          SSL_CTX_use_PrivateKey_file(tls, optarg, SSL_FILETYPE_PEM) == 1) break;
      fprintf(stderr, "%s holds no certificate with its key\n", optarg);
      exit(2);
#endif
    default: fprintf(stderr, "the options stand at the top of truthserver.c\n"); exit(2);
  }
}

int main(int argc, char **argv) {
  options(argc, argv);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_TIMERSLACK, 1UL);
  struct rlimit files = {65535, 65535};
  setrlimit(RLIMIT_NOFILE, &files);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof here;
  if (bind(listener, (void *)&here, size) || listen(listener, 4096)) return perror("truthserver"), 1;
  getsockname(listener, (void *)&here, &size);
  printf("truthserver listening on %d\n", ntohs(here.sin_port));
  fflush(stdout);
  poller = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, ready[256];
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
  for (ns measured = 0;;) {
    ns moment = now();
    if (moment - measured > 1000000000LL) offset = wall_offset(), measured = moment;
    for (int budget = 32; due && heap[0].at <= moment && budget--;) {
      struct deadline d = heap[0];
      struct conn *c = conns[d.fd];
      if (!c || c->serial != d.serial || !c->streaming) { pop(); continue; }
      write_token(c);
      if (!c->streaming) { pop(); answer(c); continue; }
      d.at = next_due(c);
      replace_top(d);
    }
    ns wait = due ? heap[0].at - now() : 1000000000LL;
    struct timespec patience = {fmax(wait, 0) / 1000000000LL, wait > 0 ? wait % 1000000000LL : 0};
    int n = epoll_pwait2(poller, ready, 256, &patience, NULL);
    for (int i = 0; i < n; i++) {
      struct conn *c = conns[ready[i].data.fd];
      if (ready[i].data.fd == listener) { welcome(listener); continue; }
      if (c && ready[i].events & EPOLLOUT) flush(c);
      if (c && ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (take(c)) answer(c);
        else drop(c);
      }
    }
  }
}
