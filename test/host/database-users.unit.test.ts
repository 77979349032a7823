import { expect, test } from '@jest/globals'
import { makeDatabaseUsers } from '../../activities/host/database-users.ts'
import type { TaskCommands } from '../../drivers/swarms.ts'
import { makeLogger } from '../../lib/log.ts'

const nameOf = (digit: string): string => `k_${digit.repeat(24)}`
const [stuck, gone, made] = [nameOf('a'), nameOf('b'), nameOf('c')]

/** An engine that does not remove one of its users. */
function engine() {
  const users = new Set(['owner', stuck, gone])
  const run: TaskCommands['run'] = async (_machine, _service, { command, env = {} }) => {
    const { ATTACHED_USER: name = '' } = env
    if (command === 'remove' && name === stuck)
      return { exit_code: 1, output: 'objects depend on it', timed_out: false }
    if (command === 'remove') users.delete(name)
    if (command === 'make') users.add(name)
    return { exit_code: 0, output: [...users].join('\n'), timed_out: false }
  }
  return { users, run }
}

test('a user that an engine does not remove keeps no other from going, and none from coming', async () => {
  const { users, run } = engine()
  const hosted = makeDatabaseUsers({
    commands: { run },
    wanted: async () => ({
      version: '1',
      databases: [
        {
          id: 'database',
          machine_id: 'machine',
          starts: 1,
          users: [{ name: made, password: 'secret' }],
          commands: { list: 'list', make: 'make', remove: 'remove' },
        },
      ],
    }),
    log: makeLogger('host', 'fatal'),
  })
  await hosted.ready('database', { gone: false })
  expect([...users]).toEqual(['owner', stuck, made])
  await expect(hosted.ready('database', { gone: true })).rejects.toThrow('objects depend on it')
  // It is tried again.
  expect(hosted.version()).toBeNull()
})
