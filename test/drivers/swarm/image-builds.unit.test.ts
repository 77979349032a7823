import { Duplex } from 'node:stream'
import { expect, test } from '@jest/globals'
import { BuildFailed, EngineUnavailable } from '../../../drivers/errors.ts'
import { makeImageBuilds } from '../../../drivers/swarm/image-builds.ts'

/** Builds in a machine whose script says so. */
function buildIn(said: string) {
  const stream = new Duplex({
    read() {},
    write: (_chunk, _encoding, done) => done(),
  })
  stream.push(said)
  stream.push(null)
  const order = {
    id: 'b',
    folder: '/opt/apps/shop',
    dockerfile: { path: 'Dockerfile' },
    reference: 'shop:b',
    target: null,
    build_args: {},
    secrets: {},
    timeout_sec: 60,
  }
  return makeImageBuilds(async () => stream).run(
    'one',
    order,
    async () => 'pushed',
    () => {},
  )
}

test('an image that was built is pushed', async () => {
  expect(await buildIn('keelson: turn\nkeelson: ended 0\n')).toBe('pushed')
})

const away = "cannot connect to the Docker daemon. Is 'docker daemon' running on this host?"

test.each(['keelson: turn\n', `failed to dial gRPC: ${away}\nkeelson: ended 1\n`])(
  'a machine that says %j may build it later',
  async (said) => {
    await expect(buildIn(said)).rejects.toBeInstanceOf(EngineUnavailable)
  },
)

test('a step that finds no engine fails its build', async () => {
  const said = `#5 0.135 ${away}\n------\n > [2/2] RUN docker ps:\n0.135 ${away}\nkeelson: ended 1\n`
  await expect(buildIn(said)).rejects.toBeInstanceOf(BuildFailed)
})
