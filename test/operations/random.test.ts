import { afterEach, beforeAll, expect, test } from '@jest/globals'
import { setTimeout as delay } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { isLong } from '../support/long.ts'
import { Operation } from '../support/client.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'
import { type Command, World } from '../support/world.ts'
import { compare } from '../support/world-checks.ts'
import { type Fault, type Faults, openFaults } from '../support/world-faults.ts'

// Random operations on containers, disks and subnets, several at a time, with a fault in the middle: a kill, a freeze, dropped
// packets or a full disk. After each round the platform's records and the machine must match the model. To repeat a seed:
// KEELSON_TEST_SEED=… script/test operations/random

const operations = isLong ? 300 : 30
const slots = isLong ? { containers: 20, disks: 10 } : { containers: 6, disks: 4 }
const atOnce = 6

describeHosts('random operations', () => {
  let world: World
  let faults: Faults
  beforeAll(async () => {
    world = await World.make(await makeTenant())
    faults = await openFaults(world)
    await open(world.hosts)
  })
  // Before the stack starts the roles that it does not run now.
  afterEach(async () => {
    try {
      await removeTenants()
    } finally {
      await faults.end()
      await closeFurther()
    }
  })

  test(
    `match the model after ${operations}, seed ${seed}`,
    async () => {
      const dice = new Dice(seed)
      let done = 0
      for (let round = 1; done < operations; round++) {
        const commands = draw(world, dice)
        if (commands.length === 0) continue
        const fault = dice.chance(0.5) ? faults.draw(dice) : null
        const all = commands.map((command) => command.words).join('; ')
        const words = `seed ${seed}, round ${round}: ${all}; ${fault?.words ?? 'no fault'}`
        console.log(words)
        try {
          await carryOut(world, commands, fault, dice.number(1_500))
          await compare(world)
        } catch (error) {
          throw new Error(words, { cause: error })
        }
        done += commands.length
      }
    },
    (isLong ? 120 : 30) * 60_000,
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

/** Starts all commands, has a fault happen after so long, and waits until each has succeeded. */
async function carryOut(
  world: World,
  commands: Command[],
  fault: Fault | null,
  afterMs: number,
): Promise<void> {
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
  if (fault) {
    await delay(afterMs)
    await fault.happen()
  }
  for (const { command, body, operation } of sent) {
    if (command.refused || !operation) continue
    const { state, error } = await operation.end()
    if (state === 'succeeded') command.apply?.(body)
    else {
      const { words, made } = command
      console.log(`${words}: ${JSON.stringify({ state, error })}`)
      expect({ words, state, error }).toMatchObject({ state: fault?.mayFail ? 'failed' : 'succeeded' })
      expect({ words, error }).not.toMatchObject({ error: { code: 'internal' } })
      if (made) await (await owner.begin('DELETE', made(body))).operation.success()
    }
  }
}
