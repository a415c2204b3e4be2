"""What a run's records say: statistics, bill, verdict, prediction. Sends nothing."""
