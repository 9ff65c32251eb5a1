"""Other systems that sparklog is compared with, started for real from jars."""
