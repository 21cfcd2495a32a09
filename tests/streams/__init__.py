"""Stream dialects and faults: the cases, and the script that writes them out."""
