import { expect, test } from '@jest/globals'
import { makeRegistryGuard } from '../../lib/registry-guard.ts'

// Names and what they lead to; another one is unknown.
const names: Record<string, string[]> = {
  'public.example.com': ['93.184.216.34', '2606:2800:220:1::1'],
  'private.example.com': ['10.0.0.5'],
  'loopback.example.com': ['127.0.0.1'],
  'metadata.example.com': ['169.254.169.254'],
  'azure.example.com': ['168.63.129.16'],
  'unique-local.example.com': ['fd00:ec2::254'],
  'mapped.example.com': ['::ffff:127.0.0.1'],
  'translated.example.com': ['64:ff9b::a00:5'],
  'mixed.example.com': ['93.184.216.34', '192.168.0.1'],
  'one-of-two.example.com': ['93.184.216.34', '::1'],
}

const lookups: string[] = []
const lookup = async (name: string): Promise<{ address: string }[]> => {
  lookups.push(name)
  const found = names[name]
  if (!found) throw Object.assign(new Error('unknown'), { code: 'ENOTFOUND' })
  return found.map((address) => ({ address }))
}

test.each(Object.keys(names).filter((name) => !name.startsWith('public')))(
  'a host does not ask a registry at %s, which is at a private address',
  async (name) => {
    const guard = makeRegistryGuard({ private: ['localhost:5000'], lookup })
    expect(await guard(`${name}/team/app:1`)).toBe(false)
    expect(await guard(`${name}:5000/app@sha256:${'a'.repeat(64)}`)).toBe(false)
  },
)

test('a host asks registries at public addresses, and unknown names, which its engine may know', async () => {
  const guard = makeRegistryGuard({ private: [], lookup })
  expect(await guard('public.example.com/team/app')).toBe(true)
  expect(await guard('unknown.example.com/team/app')).toBe(true)
  expect(await guard('93.184.216.34:5000/team/app')).toBe(true)
})

test('a host asks the private registries that the operator lists, at exactly their ports', async () => {
  const guard = makeRegistryGuard({ private: ['Private.example.com:5000', 'localhost:5000'], lookup })
  expect(await guard('private.example.com:5000/app')).toBe(true)
  expect(await guard('localhost:5000/app')).toBe(true)
  expect(await guard('private.example.com/app')).toBe(false)
  expect(await guard('localhost:5001/app')).toBe(false)
})

test('Docker Hub is not looked up, since an engine may have a mirror of it', async () => {
  lookups.length = 0
  const guard = makeRegistryGuard({ private: [], lookup })
  for (const image of ['busybox', 'keelson/hello:1', 'docker.io/library/busybox'])
    expect(await guard(image)).toBe(true)
  expect(lookups).toEqual([])
})

test('a name whose lookup does not end is not asked', async () => {
  const guard = makeRegistryGuard({ private: [], lookup: () => new Promise(() => {}), withinMs: 10 })
  expect(await guard('slow.example.com/app')).toBe(false)
})
