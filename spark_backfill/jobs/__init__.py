"""Jobs: work over much data that runs once and ends with a summary. A folder for each job, with the job in `job.py`."""
