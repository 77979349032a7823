// A compose file of three containers, of the image `demo` (test/support/app-images.ts): a store that is healthy when its
// file is there, an app that shows what the store has, and a worker that begins last.

interface Parts {
  greeting?: string
  /** Of the app. */
  tag?: string
  /** The ports that the app opens. It listens at 3000. */
  ports?: number[]
  /** Keys of a further container. */
  extra?: string
}

export const composed = ({
  greeting = 'hello',
  tag = 'v1',
  ports = [3000],
  extra = '',
}: Parts = {}): string => `
services:
  app:
    image: demo:${tag}
    mem_limit: 32m
    ports: ${JSON.stringify(ports)}
    environment:
      GREETING: ${greeting}
      PASSWORD: \${SERVICE_PASSWORD_APP}
    command:
      - sh
      - -c
      - |
        mkdir -p /www/cgi-bin
        cat >/www/cgi-bin/look <<END
        #!/bin/sh
        echo; echo "$$GREETING $$VERSION \\$$(wget -qO- http://store:8000/count)"
        END
        chmod +x /www/cgi-bin/look
        wget -qO- http://store:8000/count >/www/first || echo none >/www/first
        exec httpd -f -p 3000 -h /www
    depends_on: { store: { condition: service_healthy } }
    stop_grace_period: 1s
  store:
    image: demo:v1
    mem_limit: 32m
    command: [sh, -c, "sleep 2; [ -f /data/count ] || echo 0 >/data/count; echo store begins; exec httpd -f -p 8000 -h /data"]
    volumes: [data:/data]
    healthcheck: { test: "wget -qO- http://127.0.0.1:8000/count", interval: 1s, timeout: 5s, retries: 10 }
    stop_grace_period: 1s
  worker:
    image: demo:v1
    mem_limit: 16m
    command: [sh, -c, "echo worker begins; exec sleep 100000"]
    depends_on: [app]
    stop_grace_period: 1s
${extra}
volumes:
  data:
`
