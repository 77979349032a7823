import { beforeAll, expect, test } from '@jest/globals'
import { makeGo, makeNode, makePhp, makePython } from '../support/base-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { buildsOf } from '../support/clients/builds.ts'
import { isLong } from '../support/long.ts'
import { sampled } from '../support/sampled.ts'
import { sharedServer } from '../support/shared-server.ts'
import type { TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// Applications without a Dockerfile, from their files to an answer. Their images have some 150 MB, which a small machine
// takes half a minute to push, so a run draws one. What they depend on is among their files: builds have no internet here.

interface Case {
  name: string
  makeImage: () => Promise<void>
  files: Record<string, string>
  kind: string
  log: string[]
  /** What installs its packages: a later build with the same manifests has it from the cache. */
  installs?: string
}

const node: Case = {
  name: 'Node by its lock file',
  makeImage: makeNode,
  files: {
    'package.json': JSON.stringify({ name: 'web', version: '1.0.0', scripts: { start: 'node server.js' } }),
    'package-lock.json': JSON.stringify({
      name: 'web',
      version: '1.0.0',
      lockfileVersion: 3,
      packages: { '': { name: 'web', version: '1.0.0' } },
    }),
    'server.js':
      "require('http').createServer((_, answer) => answer.end('hello world')).listen(process.env.PORT)",
  },
  kind: 'Node',
  log: [
    '- package-lock.json: npm installs exactly what it locks',
    '- the script `start`: node server.js',
    'keelson/test-node:24 was copied from the host',
  ],
  installs: 'npm ci',
}

const python: Case = {
  name: 'Python by its main.py',
  makeImage: makePython,
  files: {
    'main.py': `import http.server, os
class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'hello world')
http.server.HTTPServer(('', int(os.environ['PORT'])), Hello).serve_forever()
`,
  },
  kind: 'Python',
  log: ['- it has main.py', 'keelson/test-python:3 was copied from the host'],
}

// By sockets alone: to compile Go's own HTTP server takes a small machine a minute.
const go: Case = {
  name: 'Go with its modules in vendor/',
  makeImage: makeGo,
  files: {
    'go.mod': 'module example.com/web\n\ngo 1.19\n\nrequire example.com/greeting v1.2.3\n',
    'go.sum': '',
    'vendor/modules.txt': '# example.com/greeting v1.2.3\n## explicit; go 1.19\nexample.com/greeting\n',
    'vendor/example.com/greeting/greeting.go':
      'package greeting\n\nfunc Of(name string) string { return "hello " + name }\n',
    'cmd/web/main.go': `package main

import (
	"net"
	"os"
	"strconv"

	"example.com/greeting"
)

func answer(caller net.Conn) {
	body := greeting.Of("world")
	caller.Read(make([]byte, 4096))
	caller.Write([]byte("HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: " + strconv.Itoa(len(body)) + "\\r\\n\\r\\n" + body))
	caller.Close()
}

func main() {
	listener, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	if err != nil {
		panic(err)
	}
	for {
		if caller, err := listener.Accept(); err == nil {
			go answer(caller)
		}
	}
}
`,
  },
  kind: 'Go',
  log: ['- vendor/modules.txt: its modules are in vendor/', '- cmd/web: the only program below cmd/'],
}

const php: Case = {
  name: 'PHP by Composer',
  makeImage: makePhp,
  files: {
    'composer.json': JSON.stringify({
      repositories: [{ type: 'path', url: 'packages/*' }, { 'packagist.org': false }],
      require: { 'acme/greeting': '1.2.3' },
    }),
    'packages/greeting/composer.json': JSON.stringify({
      name: 'acme/greeting',
      version: '1.2.3',
      autoload: { 'psr-4': { 'Acme\\': 'src/' } },
    }),
    'packages/greeting/src/Greeting.php':
      '<?php\nnamespace Acme;\nclass Greeting { static function of($name) { return "hello $name"; } }\n',
    'public/index.php':
      "<?php\nrequire __DIR__ . '/../vendor/autoload.php';\necho Acme\\Greeting::of('world');\n",
  },
  kind: 'PHP',
  log: ['- composer.json has packages in folders', '- FrankenPHP serves /app/public'],
}

let tenant: TestTenant
let server: DeployServerBody
let builds: ReturnType<typeof buildsOf>
let apps: ReturnType<typeof applicationsOf>
beforeAll(async () => {
  ;({ tenant, server } = await sharedServer())
  builds = buildsOf(tenant.owner, server.id)
  apps = applicationsOf(tenant.owner, server.id)
})

// The images of Go and PHP take minutes to make.
test.each(isLong ? [node, python, go, php] : sampled([node, python], 1))(
  'files without a Dockerfile are built and served: $name',
  async ({ makeImage, files, kind, log, installs }) => {
    await makeImage()
    const build = await builds.make('web', files)
    expect(build).toMatchObject({ status: 'succeeded', generated: kind })
    const said = await builds.log(build.id)
    for (const line of log) expect(said).toContain(line)
    const app = await apps.make({ image: 'web', tag: 'latest', memory_mib: 96 })
    expect((await visit(app.url)).text).toBe('hello world')
    await (await apps.delete(app.id)).operation.success()
    if (installs === undefined) return
    const again = await builds.make('web', { ...files, 'news.txt': 'of today' }, { tag: 'again' })
    const step = new RegExp(`#(\\d+) \\[[^\\]]+\\] RUN [^\\n]*${installs}[^\\n]*\\n[^\\n]*#\\1 CACHED`)
    expect(await builds.log(again.id)).toMatch(step)
  },
)
