"""Upkeep on a schedule: cron times, claims, runs, their history."""
