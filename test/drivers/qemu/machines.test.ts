import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { processesWith } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import { userOf } from '../../../drivers/system/confinement.ts'
import { confinementOf } from '../../support/confinement.ts'
import { testDrawn } from '../../support/drawn.ts'
import { eventually } from '../../support/eventually.ts'
import {
  anotherWorker,
  inMachine,
  linesOf,
  machines,
  machineSpec,
  said,
  script,
  start,
  traces,
  withMachines,
} from '../../support/machine-hosts.ts'

/** Leaves the machine's QEMU a fifth of the time, as a busy host does. */
async function slowDown(id: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const pids = (await processesWith(id)).map(({ pid }) => pid)
    const each = (name: NodeJS.Signals): void => {
      for (const pid of pids) {
        try {
          process.kill(pid, name)
        } catch {} // it has ended
      }
    }
    each('SIGSTOP')
    await delay(40)
    each('SIGCONT')
    await delay(10)
  }
}

withMachines('machines', () => {
  test('run their image’s files and their command with its config vars, once however often it is retried', async () => {
    const spec = script('echo "$GREETING from $(hostname)"; exec sleep 600', { name: 'first' })
    const operation = newId()
    const found = await start(spec, { GREETING: 'hello' }, operation)
    expect(found).toMatchObject({
      id: spec.id,
      kind: 'microvm',
      state: 'running',
      exit_code: null,
      suspended: null,
    })
    expect(await said(spec.id, 'hello from first')).toBe(true)
    expect(await start(spec, { GREETING: 'hello' }, operation)).toEqual(await machines.find(spec.id))
    expect((await machines.find(spec.id))?.pid).toBe(found.pid)
    expect(
      await inMachine(spec.id, 'echo $GREETING; df -k / | tail -1 | awk "{print (\\$2 > 900000)}"'),
    ).toBe('hello\n1')
    // Its QEMU has no capability, and no way to get one.
    expect(await confinementOf(found.pid)).toMatchObject({
      user: userOf(spec.id),
      capabilities: [],
      most_capabilities: [],
      no_new_privileges: true,
      filtered: true,
      most_pids: '257',
    })
    // The tenant's secrets are not on the host.
    expect(await traces(spec.id)).not.toContainEqual(expect.stringContaining('hello'))
  })

  testDrawn('keep their disk over stop and start; a reboot is done once for an operation', async () => {
    const spec = machineSpec()
    await start(spec)
    await inMachine(spec.id, 'echo kept > /kept; sync')
    await machines.stop(spec.id, 5)
    expect(await machines.find(spec.id)).toMatchObject({ state: 'exited', pid: null })
    expect(await traces(spec.id)).toEqual([spec.id])
    await machines.stop(spec.id, 5)
    await start(spec)
    const operation = newId()
    const rebooted = await machines.reboot(spec, {}, operation, 5)
    expect(await machines.reboot(spec, {}, operation, 5)).toMatchObject({ pid: rebooted.pid })
    expect(await inMachine(spec.id, 'cat /kept')).toBe('kept')
    await machines.remove(spec.id, { engineId: newId() })
    expect(await machines.find(spec.id)).not.toBeNull()
    await machines.remove(spec.id)
    await machines.remove(spec.id)
    expect(await machines.find(spec.id)).toBeNull()
  })

  testDrawn(
    'fail to start with a command that cannot be started or ends at once, and leave nothing',
    async () => {
      const missing = machineSpec({ command: ['/no/such'] })
      await expect(start(missing)).rejects.toMatchObject({ code: 'command_not_started', permanent: true })
      expect(await traces(missing.id)).toEqual([])
      const failing = script('echo oh no; exit 3')
      await expect(start(failing)).rejects.toMatchObject({
        code: 'exited_at_once',
        message: expect.stringContaining('oh no'),
      })
      expect(await traces(failing.id)).toEqual([])
    },
  )

  testDrawn(
    'fail to start with a command that ends at once also while the host has little time for them',
    async () => {
      const failing = script('echo oh no; exit 3')
      const slowed = new AbortController()
      const slowing = slowDown(failing.id, slowed.signal)
      try {
        await expect(start(failing)).rejects.toMatchObject({ code: 'exited_at_once' })
      } finally {
        slowed.abort()
        await slowing
      }
      expect(await traces(failing.id)).toEqual([])
    },
  )

  testDrawn(
    'end with their job; all lines and the exit code are kept, also while no worker ran',
    async () => {
      const spec = script('i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done; sleep 3; exit 7', {
        restart_policy: 'never',
      })
      await start(spec)
      await anotherWorker()
      expect(await eventually(async () => (await machines.find(spec.id))?.state === 'exited')).toBe(true)
      expect(await machines.find(spec.id)).toMatchObject({ exit_code: 7 })
      expect(await linesOf(spec.id)).toEqual(Array.from({ length: 2000 }, (_, index) => `line ${index + 1}`))
    },
  )

  testDrawn(
    'report how a guest ended without its command, and report nothing for a killed process',
    async () => {
      const { id } = await start(machineSpec())
      expect(await machines.find(id)).toMatchObject({ state: 'running', ended_by: null })
      await inMachine(id, 'sync; echo b >/proc/sysrq-trigger').catch(() => {}) // the reset breaks this request
      await eventually(async () => (await machines.find(id))?.ended_by)
      expect(await machines.find(id)).toMatchObject({
        state: 'exited',
        exit_code: null,
        ended_by: 'restarted',
      })
      const { pid } = await start(machineSpec({ id }))
      expect(await machines.find(id)).toMatchObject({ state: 'running', ended_by: null })
      process.kill(pid ?? 0, 'SIGKILL')
      await eventually(async () => (await machines.find(id))?.state === 'exited')
      expect(await machines.find(id)).toMatchObject({ exit_code: null, ended_by: null })
    },
  )

  test('have terminals with a size, input and an exit code, which end when they are hung up', async () => {
    const { id } = await start(machineSpec())
    const terminal = await machines.exec(id, ['sh'], { cols: 100, rows: 30 })
    let output = ''
    terminal.stream.on('data', (data: Buffer) => (output += data.toString()))
    const shows = (text: string): Promise<boolean> => eventually(() => output.includes(text))
    terminal.stream.write('stty size\n')
    expect(await shows('30 100')).toBe(true)
    await terminal.resize({ cols: 120, rows: 40 })
    terminal.stream.write('stty size\n')
    expect(await shows('40 120')).toBe(true)
    terminal.stream.write('exit 9\n')
    expect(await terminal.exitCode()).toBe(9)
    await expect(inMachine(id, 'exit 4')).rejects.toThrow('exit code 4')
    const other = await machines.exec(id, ['sleep', '12345'], { cols: 80, rows: 24 })
    await other.close()
    expect(await eventually(async () => !(await inMachine(id, 'ps')).includes('12345'))).toBe(true)
    expect((await inMachine(id, 'head -c 3000000 /dev/zero | tr "\\0" x')).length).toBe(3_000_000)
  })
})
