import { describe, expect, test } from '@jest/globals'
import { isImageReference } from '../../../lib/image-names.ts'
import { refusedAs, render, withKeys } from '../../support/compose-texts.ts'

// What a Swarm would refuse only when the service starts, and what a container would not do as it is written, is refused at once,
// with its line. What has no effect is taken.

const around = ['volumes: { a: {}, b: {} }', 'configs: { one: { content: "1" }, two: { content: "2" } }', '']
const text = (...lines: string[]): string => withKeys('tty: false', ...lines) + around.join('\n')

const storageOf = (container: string) => [{ container, mount_path: '/d' }]

describe('what the Swarm would refuse is refused with its line:', () => {
  test.each([
    ['volumes: [a:/d, b:/d]', 'something else is mounted at /d'],
    ['volumes: [a:/d, b:/d/]', 'something else is mounted at /d'],
    ['volumes: [a:/d, { type: tmpfs, target: //d }]', 'something else is mounted at /d'],
    ['volumes: [{ type: tmpfs, target: tmp }]', 'must be mounted at an absolute path'],
    ['volumes: ["a:/{{x}}"]', 'must not have {{ in its path'],
    ['tmpfs: [/tmp, /tmp/]', 'something else is mounted at /tmp'],
    ['tmpfs: tmp', 'must be mounted at an absolute path'],
    ['tmpfs: //', 'must be mounted at an absolute path'],
    ['tmpfs: /tmp:size=much', 'must have a size'],
    ['tmpfs: /tmp:size=0', 'must have a size'],
    ['tmpfs: /tmp:size=99999999t', 'must have a size'],
    ['volumes: [{ type: tmpfs, target: /tmp, tmpfs: { size: much } }]', 'must have a size'],
    ['shm_size: much', 'must have a size'],
    [
      'configs: [{ source: one, target: /x }, { source: two, target: /x }]',
      'something else is mounted at /x',
    ],
    ['configs: [{ source: one, mode: 0.5 }]', 'must be 0 to 0777'],
    ['configs: [{ source: one, mode: -1 }]', 'must be 0 to 0777'],
    ['configs: [{ source: one, mode: 99999999999 }]', 'must be 0 to 0777'],
    ['healthcheck: { test: x, retries: 1.5 }', 'must be a whole number'],
    ['healthcheck: { test: x, retries: -1 }', 'must be a whole number'],
    ['healthcheck: { test: x, retries: 3000000000 }', 'must be a whole number'],
    ['healthcheck: { test: x, interval: 500us }', 'must be 0, or 1ms to 24h'],
    ['healthcheck: { test: x, timeout: 9999999h }', 'must be 0, or 1ms to 24h'],
  ])('%s', (line, words) => {
    const errors = refusedAs(text(line))
    expect(errors).toMatchObject([{ line: 5, message: expect.stringContaining(words) }])
  })

  test('a folder in memory where a volume is, or the shared memory', () => {
    const errors = refusedAs(text('volumes: [a:/d]', 'tmpfs: [/d, /dev/shm]', 'shm_size: 64m'))
    expect(errors.map(({ line }) => line)).toEqual([6, 7])
  })

  test('a volume where a storage of the container is', () => {
    const errors = refusedAs(text('volumes: [a:/d]'), {}, storageOf('web'))
    expect(errors).toMatchObject([{ line: 5, message: expect.stringContaining('a storage of the service') }])
    expect(render(text('volumes: [a:/d]'), {}, storageOf('other')).containers[0]?.volumes).toHaveLength(1)
  })

  test('a short text that would be long with its variables', () => {
    const bomb = withKeys(`command: "${'$V'.repeat(10_000)}"`)
    const [error] = refusedAs(bomb, { V: 'x'.repeat(32_768) })
    expect(error).toMatchObject({ line: 4, message: expect.stringContaining('1 MiB') })
  })

  test('configs that are empty or too large', () => {
    const configs = `configs:\n  none: { content: "" }\n  large: { content: "\${LARGE}" }\n`
    const errors = refusedAs(configs + withKeys(), { LARGE: 'x'.repeat(500 * 1024 + 1) })
    expect(errors.map(({ line }) => line)).toEqual([2, 3])
  })

  test('an environment that is too large', () => {
    const errors = refusedAs(text('environment: { A: "$LARGE" }'), { LARGE: 'x'.repeat(512 * 1024) })
    expect(errors).toMatchObject([{ line: 2, message: expect.stringContaining('more than 512 KiB') }])
  })

  test('a config that is mounted so often that the files are too large', () => {
    const mounts = Array.from({ length: 50 }, (_, index) => `{ source: one, target: /${index} }`)
    const configs = `configs: { one: { content: "${'x'.repeat(20_000)}" } }\n`
    const others = ['b', 'c', 'd'].map((name) => `  ${name}: { image: a, configs: *files }\n`).join('')
    const errors = refusedAs(`${configs}${withKeys(`configs: &files [${mounts.join(', ')}]`)}${others}`)
    expect(errors).toMatchObject([{ line: 7, message: expect.stringContaining('more than 2 MiB') }])
  })
})

describe('what a container would not do as it is written is refused with its line:', () => {
  test.each([
    'stdin_open: true',
    'restart: on-failure:5',
    'configs: [{ source: one, uid: "1000" }]',
    'configs: [{ source: one, gid: "1000" }]',
    'volumes: [{ type: volume, source: a, target: /d, volume: { nocopy: true } }]',
    'volumes: [{ type: volume, source: a, target: /d, bind: { propagation: shared } }]',
    'volumes: [{ type: tmpfs, target: /d, read_only: true }]',
    'volumes: [a:/d:nocopy]',
    'volumes: [a:/d:ro,rslave]',
    'tmpfs: /tmp:mode=700',
    'tmpfs: /tmp:size=16m,uid=1000',
    'tmpfs: /tmp:exec',
  ])('%s', (line) => {
    expect(refusedAs(text(line))).toMatchObject([{ line: 5 }])
  })

  test.each([['required: false'], ['restart: true']])('depends_on with %s', (key) => {
    const needs = `depends_on: { db: { condition: service_started, ${key} } }`
    expect(refusedAs(`${withKeys(needs)}  db: { image: a }\n`)).toMatchObject([{ line: 4 }])
  })
})

test.each([
  'labels: [a=b]',
  'annotations: { a: b }',
  'expose: [80]',
  'stdin_open: false',
  'ports: [{ target: 80, published: 8080, mode: host }]',
  'healthcheck: { test: x, start_interval: 1s, retries: 0 }',
  'volumes: [a:/d:ro, { type: volume, source: b, target: /e, consistency: cached, volume: { nocopy: false } }]',
  'volumes: [a:/d:rw, b:/e:z]',
  'tmpfs: ["/tmp:rw,noexec,nosuid,nodev,mode=1777,size=16m"]',
  'configs: [{ source: one, target: /x, uid: "0", gid: "0", mode: 0o440 }]',
])('%s is taken', (line) => {
  expect(render(text(line)).containers).toHaveLength(1)
})

test('an input that is kept open is that of a terminal', () => {
  expect(render(withKeys('tty: true', 'stdin_open: true')).containers[0]?.tty).toBe(true)
})

const digest = `sha256:${'0'.repeat(64)}`
test.each([
  'demo',
  'demo:v1',
  'team/demo__x-y.z--1:V1.2_3-x',
  `demo:v1@${digest}`,
  `registry.example:5000/team/demo@${digest}`,
  'Registry.example/demo',
  'REGISTRY:5000/demo',
  'localhost/demo:1',
])('%s names an image', (name) => {
  expect(isImageReference(name)).toBe(true)
})

test.each([
  '',
  'Demo',
  'team/Demo:v1',
  'demo:',
  'demo:.x',
  `demo:${'x'.repeat(129)}`,
  'demo@sha256:abc',
  'Team/demo',
  '[::1]:5000/demo',
  'a..b',
  'a___b',
  '-a',
  'a-',
  'a//b',
  'a b',
  'a'.repeat(64),
  'x'.repeat(250),
])('%s names no image', (name) => {
  expect(isImageReference(name)).toBe(false)
  expect(refusedAs(`services: { web: { image: "${name}" } }`)).toHaveLength(1)
})
