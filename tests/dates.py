"""The day on which every test happens: what is said about the age of tables must not depend on the calendar."""

TODAY = "2026-12-01"
