"""The policies that come with hwprobe: a site's wishes as TOML files, read by `hwprobe.policy_reader`."""
