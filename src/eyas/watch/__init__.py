"""The watchdog over metrics, logs, heartbeats and job states: a door; the room is still to come."""
