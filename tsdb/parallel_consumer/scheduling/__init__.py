"""Schedules tasks: order by lane, limits, streaks, attempts and dead letters."""
