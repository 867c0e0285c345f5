"""The grammar of selectors, which is PromQL's: every command, client and job that takes a selector parses it here."""
