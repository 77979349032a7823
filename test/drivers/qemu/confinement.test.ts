import { open, readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { confine, userOf } from '../../../drivers/system/confinement.ts'
import { makeMachinePlaces } from '../../../drivers/qemu/places.ts'
import { run } from '../../../drivers/system/programs.ts'
import { guest } from '../../support/guest-files.ts'
import { machines, machineSpec, settings, start, withMachines } from '../../support/machine-hosts.ts'

// What a guest that breaks QEMU finds. It cannot be broken here, so another program stands in its place.

const placeOf = (id: string) => makeMachinePlaces(settings.folder, settings.run)(id)

withMachines('what confines QEMU', () => {
  test('it sees its own files alone, and no network', async () => {
    const [one, other] = [machineSpec(), machineSpec()]
    const [{ pid }] = [await start(one), await start(other)]
    const seen = `/proc/${pid}/root`
    const [its, others] = [placeOf(one.id), placeOf(other.id)]
    expect((await stat(seen + its.root)).uid).toBe(userOf(one.id))
    expect(await readdir(seen + settings.folder)).not.toContain(other.id)
    expect(await readdir(seen + settings.run)).toEqual([one.id])
    for (const path of [
      others.root,
      others.monitor,
      its.record,
      '/etc/passwd',
      '/proc',
      '/sys',
      '/tmp/.X11-unix',
    ])
      await expect(stat(seen + path)).rejects.toMatchObject({ code: 'ENOENT' })
    expect(await readdir(`${seen}/dev`)).toEqual(['null', 'urandom'])
    const devices = await readFile(`/proc/${pid}/net/dev`, 'utf8')
    expect(devices.split('\n').flatMap((line) => /^ *(\w+):/.exec(line)?.[1] ?? [])).toEqual(['lo'])
    expect(await readlink(`/proc/${pid}/ns/mnt`)).not.toBe(await readlink('/proc/self/ns/mnt'))
  })

  test('a program in its place changes nothing, reaches nobody and gets no rights', async () => {
    const one = machineSpec()
    const found = await start(one)
    const place = placeOf(one.id)
    const asked = (command: string) =>
      confine(join(guest, 'helper'), `${settings.run}/`, {
        program: 'bash',
        arguments: ['-c', command],
        user: userOf('another machine'),
        group: userOf('another machine'),
        writable: [],
        // It has the files of the other even in view.
        readable: [settings.folder, place.run],
        root: place.view,
      })
    for (const refused of [
      `cat ${place.root}`,
      `cat ${place.record}`,
      `exec 3<>/dev/tcp/127.0.0.1/22`,
      `exec 3<>/dev/tcp/169.254.169.254/80`,
      `kill -9 ${found.pid}`,
      `kill -9 1`,
      `echo > ${place.run}/new`,
      `echo > /new`,
      `echo > /usr/new`,
      `mount -t tmpfs none /usr`,
      `unshare --user true`,
      `chown 0 /dev/null`,
    ])
      await expect(asked(refused)).rejects.toMatchObject({ code: 'engine_unavailable' })
    expect(await asked('echo "$UID"; ulimit -c')).toBe(`${userOf('another machine')}\n0\n`)
    expect((await machines.find(one.id))?.state).toBe('running')
  })

  test('a root disk that names a file of the host as its base image does not get it', async () => {
    const spec = machineSpec()
    await start(spec)
    await machines.stop(spec.id, 5)
    const { root } = placeOf(spec.id)
    const secret = join(settings.folder, '.secret')
    await writeFile(secret, 'the secret of the host'.padEnd(65_536), { mode: 0o600 })
    await run('qemu-img', ['rebase', '-u', '-f', 'qcow2', '-F', 'raw', '-b', secret, root])
    await expect(machines.serve(spec.id, 60)).rejects.toMatchObject({ code: 'engine_unavailable' })
    await expect(machines.run(spec, {}, 'another')).rejects.toMatchObject({ code: 'engine_unavailable' })
    await machines.stopServing(spec.id)
    await expect(open(join(settings.folder, '.transfers', spec.id))).rejects.toMatchObject({ code: 'ENOENT' })
    await run('rm', [secret])
  })
})
