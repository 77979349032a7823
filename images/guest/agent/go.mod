module keelson/agent

go 1.25
