"""`tsdb chunks`: the chunks topic and the chunk stage."""
