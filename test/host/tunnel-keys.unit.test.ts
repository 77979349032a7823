import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { tunnelKeys } from '../../worker/host/enrolment.ts'

test('a host makes the keys of its tunnel once, for its user alone, and others if the file is removed', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tunnel-keys-'))
  try {
    const first = await tunnelKeys(folder)
    expect(await tunnelKeys(folder)).toEqual(first)
    const file = join(folder, 'tunnel.json')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    await rm(file)
    expect((await tunnelKeys(folder)).public_key).not.toBe(first.public_key)
  } finally {
    await rm(folder, { recursive: true })
  }
})
