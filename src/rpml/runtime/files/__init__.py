"""Files that survive a crash: atomic output, locks, checked inputs and outputs, scratch folders."""
