"""Jobs: work over much data that runs once and ends with a summary. Each job has a folder, with the job in `job.py`."""
