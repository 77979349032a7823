module keelson/helper

go 1.25
