"""What killed or stalled a run, from its logs: a door; its table of signatures is still to come."""
