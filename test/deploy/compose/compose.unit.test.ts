import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, jest, test } from '@jest/globals'
import { Lexer } from 'yaml'
import { readCompose, renderCompose } from '../../../models/deploy/compose/compose.ts'
import { diffOf } from '../../../models/deploy/compose/diff.ts'
import { rowsOf } from '../../../models/deploy/compose/plan.ts'
import { secondsOf, mebibytesOf, wordsOf } from '../../../models/deploy/compose/values.ts'
import { refusedAs, render, withKeys } from '../../support/compose-texts.ts'

// Compose files: what they say, and what is refused, with its line.

const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index)

test('a compose file says what its containers are made from', () => {
  const plan = render(
    `
name: shop
x-any: { thing: 1 }
services:
  web:
    image: demo:v1
    command: serve --name "my shop"
    entrypoint: ["/bin/run"]
    environment: [GREETING=hello, "COUNT=2"]
    ports: ["8080:80", { target: 9090 }]
    depends_on: { db: { condition: service_healthy } }
    restart: unless-stopped
    configs: [{ source: page, target: /www/index.html, mode: 0440 }]
    tmpfs: /tmp:size=16m
    cap_drop: [ALL]
    cap_add: [CAP_CHOWN]
  db:
    image: store:1
    environment: { PASSWORD: "\${PASSWORD}" }
    volumes: [data:/data, { type: volume, source: data, target: /copy, read_only: true }]
    healthcheck: { test: ready, interval: 1m30s, retries: 5 }
    stop_grace_period: 20s
    deploy: { resources: { limits: { cpus: "0.25", memory: 64M } } }
volumes: { data: {} }
configs: { page: { content: "hello" } }
`,
    { PASSWORD: 'secret' },
  )
  expect(plan).toMatchObject({ networks: [{ name: 'default', internal: false }], volumes: ['data'] })
  const [web, db] = plan.containers
  expect(web).toMatchObject({
    command: ['serve', '--name', 'my shop'],
    entrypoint: ['/bin/run'],
    env: { GREETING: 'hello', COUNT: '2' },
    ports: [80, 9090],
    depends_on: [{ name: 'db', condition: 'service_healthy' }],
    restart: 'always',
    files: [{ mount_path: '/www/index.html', content: 'hello', mode: 0o440 }],
    tmpfs: [{ mount_path: '/tmp', size_mib: 16 }],
    capabilities: { add: ['CHOWN'], drop: ['ALL'] },
    cpu_cores: 0.5,
    memory_mib: 256,
    health_check: null,
  })
  expect(db).toMatchObject({
    env: { PASSWORD: 'secret' },
    volumes: [
      { volume: 'data', mount_path: '/data', read_only: false },
      { volume: 'data', mount_path: '/copy', read_only: true },
    ],
    health_check: { command: ['/bin/sh', '-c', 'ready'], interval_sec: 90, timeout_sec: 30, retries: 5 },
    stop_grace_sec: 20,
    cpu_cores: 0.25,
    memory_mib: 64,
  })
})

describe('variables', () => {
  test.each([
    ['$A', 'a'],
    ['${A}-${B}', 'a-'],
    ['${B:-x}', 'x'],
    ['${B-x}', ''],
    ['${C-x}', 'x'],
    ['${C:-${A}}', 'a'],
    ['${A:+set}', 'set'],
    ['${C:+set}', ''],
    ['${A:?needed}', 'a'],
    ['costs $$5', 'costs $5'],
  ])('%s becomes "%s"', (text, value) => {
    const plan = render(withKeys(`command: ["${text}"]`), { A: 'a', B: '' })
    expect(plan.containers[0]?.command).toEqual([value])
  })

  test('are all told, also those with a default', () => {
    expect(readCompose(withKeys('command: ["$A ${B:-${C}}", "$$D"]')).variables).toEqual(['A', 'B', 'C'])
  })

  test.each([
    ['${NONE}', 'NONE has no value'],
    ['${NONE:?give one}', 'NONE has no value: give one'],
    ['${NONE', 'missing'],
    ['$5', 'begins no variable'],
  ])('%s is refused', (text, words) => {
    const [error] = refusedAs(withKeys('tty: true', `command: ["${text}"]`))
    expect(error).toMatchObject({ pointer: '/docker_compose', line: 5 })
    expect(error?.message).toContain(words)
  })
})

describe('what breaks out is refused with its line:', () => {
  test.each([
    'privileged: true',
    'network_mode: host',
    'network_mode: service:other',
    'network_mode: container:x',
    'pid: host',
    'ipc: host',
    'uts: host',
    'userns_mode: host',
    'cgroup: host',
    'cgroup_parent: /',
    'devices: [/dev/kvm]',
    'device_cgroup_rules: ["c 1:3 rwm"]',
    'gpus: all',
    'sysctls: { net.core.somaxconn: 1 }',
    'security_opt: [seccomp:unconfined]',
    'runtime: other',
    'use_api_socket: true',
    'mac_address: 02:42:ac:11:65:43',
    'oom_kill_disable: true',
    'cap_add: [SYS_ADMIN]',
    'cap_add: [ALL]',
    'cap_add: [cap_net_admin]',
    'volumes: [/var/run/docker.sock:/var/run/docker.sock]',
    'volumes: [/:/host]',
    'volumes: [./files:/files]',
    'volumes: [~/files:/files]',
    'volumes: ["C:\\\\files:/files"]',
    'volumes: [{ type: bind, source: /etc, target: /etc }]',
    'volumes: [{ type: npipe, source: engine, target: /engine }]',
    'volumes: [other:/data]',
    'volumes: [/data]',
    'volumes_from: [db]',
    'build: .',
    'extends: { file: other.yml, service: web }',
    'env_file: .env',
    'label_file: labels',
    'external_links: [db]',
    'links: [db]',
    'extra_hosts: ["host:host-gateway"]',
    'dns: 10.0.0.1',
    'secrets: [password]',
    'networks: [other]',
    'ports: ["53:53/udp"]',
    'ports: ["127.0.0.1:80:80"]',
    'ports: ["3000-3005:3000-3005"]',
    'deploy: { replicas: 3 }',
    'deploy: { placement: { constraints: [node.role==manager] } }',
    'deploy: { mode: global }',
    'logging: { driver: syslog }',
    'ulimits: { nofile: 1000 }',
    'init: false',
    'profiles: [debug]',
    'post_start: [{ command: x, privileged: true }]',
    'provider: { type: x }',
    'develop: {}',
    'no_such_key: 1',
  ])('%s', (line) => {
    const errors = refusedAs(withKeys('tty: false', line))
    expect(errors).toHaveLength(1)
    expect(errors[0]).toMatchObject({ pointer: '/docker_compose', line: 5 })
    expect(errors[0]?.message).toMatch(/^line 5: services\.web\.\w/)
  })

  test.each([
    'include: [other.yml]',
    'secrets: { password: { file: ./password } }',
    'secrets: { password: { external: true } }',
    'volumes: { data: { driver_opts: { type: none, o: bind, device: / } } }',
    'volumes: { data: { driver: nfs } }',
    'volumes: { data: { external: true } }',
    'volumes: { data: { name: keelson-other } }',
    'networks: { out: { external: true } }',
    'networks: { out: { name: host } }',
    'networks: { out: { driver: host } }',
    'networks: { out: { driver_opts: { a: b } } }',
    'configs: { one: { file: /etc/shadow } }',
    'configs: { one: { external: true } }',
    'models: { one: {} }',
  ])('%s', (line) => {
    const errors = refusedAs(`${line}\n${withKeys()}`)
    expect(errors.every(({ line: at }) => at === 1)).toBe(true)
    expect(errors.length).toBeGreaterThan(0)
  })

  test('a key that comes by an anchor and a merge', () => {
    const [error] = refusedAs(`x-base: &base\n  privileged: true\n${withKeys('<<: *base')}`)
    expect(error?.line).toBe(2)
  })

  test('all faults of a text at once', () => {
    const errors = refusedAs(withKeys('privileged: true', 'pid: host', 'volumes: [/etc:/etc, /:/host]'))
    expect(errors.map(({ line }) => line)).toEqual([4, 5, 6, 6])
  })
})

const hostile: [string, string, string][] = [
  ['of 5 MB', `x-a: "${'a'.repeat(5 * 1024 ** 2)}"`, 'is larger than 256 KiB'],
  ['that nests deeply in brackets', `x-a: ${'['.repeat(200_000)}`, 'nests more than 32 deep'],
  ['that nests deeply in lines', `x-a:\n  ${'- '.repeat(100_000)}a`, 'nests more than 32 deep'],
  ['of very many keys', `x-a: {${numbers(20_000).join()}}`, 'has more than 5000 keys, values and marks'],
  ['of very many lines', `${withKeys()}${'\n'.repeat(200_000)}`, 'has more than 5000 keys, values and marks'],
  ['whose aliases multiply', bomb(), 'its aliases expand to too much'],
  [
    'with variables deeply within each other',
    `x-a: "${'${A:-'.repeat(30_000)}${'}'.repeat(30_000)}"`,
    'nests variables more than 32 deep',
  ],
  [
    'with very many variables',
    `x-a: "${numbers(501)
      .map((n) => `$A${n}`)
      .join('')}"`,
    'has more than 500 variables',
  ],
  ['that is no YAML', 'services: [', 'is not YAML'],
  ['with a key twice', 'services: {}\nservices: {}', 'is not YAML'],
  ['of two documents', `${withKeys()}---\n${withKeys()}`, 'must be one YAML document'],
  ['that is empty', '', 'must be'],
  ['that is a list', '- a', 'must be a compose file'],
  ['without a container', 'services: {}', 'has no container'],
]

describe('a text is refused within its limits', () => {
  test.each(hostile)('%s', (_, text, words) => {
    const lex = Reflect.get(Lexer.prototype, 'lex')
    let lexemes = 0
    const counting = jest.spyOn(Lexer.prototype, 'lex').mockImplementation(function* (this: Lexer, ...given) {
      for (const lexeme of lex.apply(this, given)) {
        lexemes++
        yield lexeme
      }
    })
    try {
      expect(refusedAs(text)[0]?.message).toContain(words)
    } finally {
      counting.mockRestore()
    }
    // What follows is not even read.
    expect(lexemes).toBeLessThanOrEqual(5_001)
  })

  test('in a heap of 48 MiB', async () => {
    const program = join(import.meta.dirname, '../../support/refused-texts.ts')
    const running = promisify(execFile)(process.execPath, ['--max-old-space-size=48', program])
    running.child.stdin?.end(JSON.stringify(hostile.map(([, text]) => text)))
    const faults = JSON.parse((await running).stdout) as string[]
    expect(faults).toHaveLength(hostile.length)
    for (const [index, [, , words]] of hostile.entries()) expect(faults[index]).toContain(words)
  })

  test('with the first 100 of its faults', () => {
    const errors = refusedAs(
      withKeys(
        `volumes: [${numbers(300)
          .map((n) => `/:/data${n}`)
          .join()}]`,
      ),
    )
    expect(errors).toHaveLength(100)
  })

  test('with the line of each variable that has no value', () => {
    const errors = refusedAs(withKeys('command: ["$NONE"]', 'entrypoint: ["$NONE"]'))
    expect(errors.map(({ line }) => line)).toEqual([4, 5])
  })

  test('whose aliases repeat a large text: its variables are replaced once', () => {
    const deep = `${'${A:-'.repeat(30)}${'x'.repeat(200_000)}${'}'.repeat(30)}`
    const text = `x-a: &a "${deep}"\nx-b: [${numbers(90)
      .map(() => `*a`)
      .join()}]\n${withKeys()}`
    let lookups = 0
    renderCompose(readCompose(text), () => void lookups++)
    expect(lookups).toBe(30)
  })

  test('with too many containers', () => {
    const services = Array.from({ length: 21 }, (_, i) => `  s${i}: { image: a }`).join('\n')
    expect(refusedAs(`services:\n${services}`)[0]).toMatchObject({
      message: expect.stringContaining('more than 20'),
    })
  })
})

/** Each line stands for nine of the line before. */
function bomb(): string {
  const names = 'abcdefghij'.split('')
  const lines = names.map((name, index) => {
    const before = names[index - 1]
    return `x-${name}: &${name} [${before ? Array.from({ length: 9 }, () => `*${before}`).join() : '1'}]`
  })
  return `${lines.join('\n')}\n${withKeys()}`
}

test.each([
  ['x: { image: a, depends_on: [y] }', 'y is not in this text'],
  ['x: { image: a, depends_on: [z] }, z: { image: a, depends_on: [x] }', 'in a circle'],
  [
    'x: { image: a, depends_on: { z: { condition: service_completed_successfully } } }, z: { image: a }',
    'never completes',
  ],
  ['a_b: { image: a }, a.b: { image: a }', 'has the same host name as a_b'],
  ['x: { image: "a; b" }', 'must be the name of an image'],
  ['x: { image: "a..b:1" }', 'must be the name of an image'],
  ['x: { ports: [80] }', 'has no image'],
  ['x: { image: a, healthcheck: { test: x, interval: soon } }', 'is not a duration'],
  ['x: { image: a, environment: [NAME] }', 'NAME has no value'],
])('%s is refused', (services, words) => {
  expect(refusedAs(`services: { ${services} }`)[0]?.message).toContain(words)
})

const on = (...names: string[]) => names.map((name) => ({ name, condition: 'service_started' as const }))

test('containers start in rows by what they depend on', () => {
  const containers = [
    { name: 'web', depends_on: on('db', 'cache') },
    { name: 'db', depends_on: [] },
    { name: 'cache', depends_on: on('db') },
  ]
  expect(rowsOf(containers)).toEqual([['db'], ['cache'], ['web']])
})

test('a new text says what it changes, without values', () => {
  const before = render(`
services:
  web: { image: demo:v1, environment: { A: one, B: two } }
  old: { image: demo:v1, volumes: [data:/data] }
  same: { image: demo:v1 }
volumes: { data: }`)
  const after = render(`
services:
  web: { image: demo:v2, environment: { A: other, C: three } }
  new: { image: demo:v1, volumes: [more:/data] }
  same: { image: demo:v1 }
volumes: { more: }`)
  expect(diffOf(before, after)).toEqual({
    containers: [
      { container: 'old', change: 'removed', fields: [] },
      { container: 'web', change: 'changed', fields: ['image', 'env.A', 'env.B', 'env.C'] },
      { container: 'new', change: 'added', fields: [] },
    ],
    volumes: { added: ['more'], removed: ['data'] },
  })
})

test('durations, sizes and command lines are read as Docker Compose does', () => {
  expect(['30s', '1m30s', '500ms', '1h', 'soon', '5'].map(secondsOf)).toEqual([30, 90, 0.5, 3600, null, null])
  expect(['512m', '1gb', '1.5g', 1048576, '64MiB', 'x'].map(mebibytesOf)).toEqual([
    512,
    1024,
    1536,
    1,
    64,
    null,
  ])
  expect(wordsOf(`a 'b c' "d \\"e" f\\ g ""`)).toEqual(['a', 'b c', 'd "e', 'f g', ''])
  expect(wordsOf("a 'b")).toBeNull()
})
