import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { setTimeout as delay } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { isLong } from '../support/long.ts'
import { Operation } from '../support/client.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { platform, type RoleName } from '../support/platform.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'
import { makeTenant } from '../support/tenants.ts'
import { type Command, World } from '../support/world.ts'
import { compare } from '../support/world-checks.ts'

// Random operations on containers, disks and subnets, several at a time, with kills and freezes in the middle. After each round the
// platform's records and the machine must match the model. To repeat a seed: KEELSON_TEST_SEED=… script/test
// operations/random

const operations = isLong ? 300 : 30
const slots = isLong ? { containers: 20, disks: 10 } : { containers: 6, disks: 4 }
const atOnce = 6
const within = 240_000

describeHosts('random operations', () => {
  let world: World
  beforeAll(async () => {
    world = await World.make(await makeTenant())
    await open(world.hosts)
  })
  afterAll(closeFurther)

  test(
    `match the model after ${operations}, seed ${seed}`,
    async () => {
      const dice = new Dice(seed)
      let done = 0
      for (let round = 1; done < operations; round++) {
        const commands = draw(world, dice)
        if (commands.length === 0) continue
        const words = `seed ${seed}, round ${round}: ${commands.map((command) => command.words).join('; ')}`
        try {
          await carryOut(world, dice, commands)
          await compare(world)
        } catch (error) {
          throw new Error(words, { cause: error })
        }
        done += commands.length
      }
    },
    30 * 60_000,
  )
})

function draw(world: World, dice: Dice): Command[] {
  const commands: Command[] = []
  const used = new Set<string>()
  for (let tries = 0; tries < 4 * atOnce && commands.length < atOnce; tries++) {
    const command = world.draw(dice, slots)
    if (!command || command.uses.some((slot) => used.has(slot))) continue
    for (const slot of command.uses) used.add(slot)
    commands.push(command)
  }
  return commands
}

/** Starts all commands, kills or freezes a role meanwhile, and waits until each has succeeded. */
async function carryOut(world: World, dice: Dice, commands: Command[]): Promise<void> {
  const victim = dice.chance(0.5) ? dice.one(victims(world)) : null
  const fault = dice.chance(0.2) ? platform.freeze : platform.restartKilled
  const afterMs = dice.number(1_500)
  const { owner } = world.tenant
  const sent = await Promise.all(
    commands.map(async (command) => {
      const key: Record<string, string> = command.method === 'POST' ? { 'idempotency-key': newId() } : {}
      const answer = await owner.ask(command.method, command.path, command.body, key)
      expect([command.words, answer.status, answer.body['detail']]).toEqual([
        command.words,
        command.refused ?? 202,
        command.refused ? expect.anything() : undefined,
      ])
      const location = answer.headers.get('operation-location')
      return { command, body: answer.body, operation: location ? new Operation(owner, location) : null }
    }),
  )
  if (victim) {
    await delay(afterMs)
    await fault(victim)
  }
  for (const { command, body, operation } of sent) {
    if (command.refused) continue
    await operation?.success(within)
    command.apply?.(body)
  }
}

const victims = ({ hosts }: World): RoleName[] => [
  ...(['worker', 'api', 'temporal', 'mongodb'] as const),
  ...hosts.map(({ roles }) => roles.host),
]
