"""Chunks: encode the samples of one pack in one window as bytes, with the keys and markers of the topic `chunks`."""
