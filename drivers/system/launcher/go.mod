module keelson/launcher

go 1.21
