"""Steps to bills: the ledger, a burst's facts and accounts, what each request pays. No series."""
