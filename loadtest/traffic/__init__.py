"""What is asked, and when: scenarios, arrivals, lengths and bodies. Sends nothing."""
