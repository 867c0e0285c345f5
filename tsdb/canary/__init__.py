"""Canary: writes known samples through the gateway, and checks that every path of a read returns them.

layout -> the series, their values, and how a value proves itself; ledger -> the acknowledged writes of this process;
ranges -> the range of sample time that each path has; comparison -> what a read returned against what it must; checks
-> the reads of all paths; writing, checking -> the two threads. The canary uses public calls alone.
"""
