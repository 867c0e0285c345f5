"""`tsdb chunks` shows the chunks topic and the chunk stage."""
