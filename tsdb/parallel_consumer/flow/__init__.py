"""Flow of records from the source into the lanes: how much is read, and where each record goes."""
