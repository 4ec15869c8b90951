"""The audit bot on Slack: a door; the room is still to come."""
