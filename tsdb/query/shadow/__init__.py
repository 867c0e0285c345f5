"""Shadow reads: a share of a querier's reads is sent to another querier or store beside the answer, and compared.

Modules: `seen` is the hook in the service, `capture` copies an answer within a budget of bytes, `comparison` finds the
differences, `shadow` has the threads that call the shadow, and `kept` stores differing reads in a folder. Nothing here
raises into a read.
"""
