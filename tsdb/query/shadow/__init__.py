"""Shadow reads: a share of a querier's reads is sent to another querier or store beside the answer, and compared.

seen -> the hook in the service; capture -> copies of an answer within a budget of bytes; comparison -> what differs;
shadow -> the threads that ask the shadow; kept -> differing reads in a folder. Nothing here raises into a read.
"""
