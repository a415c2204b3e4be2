"""`plan`: a question, its answer by the cost model, as text and page. Measures nothing."""
