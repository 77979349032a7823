import { describe, expect, test } from '@jest/globals'
import type { ContainerSpec } from '../../../drivers/containers.ts'
import { createOptions, type Made, sizeLimits, specHash } from '../../../drivers/docker/spec.ts'

// What confines a runner of AI workflows, as the engine is told.

const spec: ContainerSpec = {
  id: 'c',
  tenant_id: 't',
  name: 'web',
  image: 'busybox:latest',
  image_digest: null,
  command: ['sleep', '1'],
  entrypoint: [],
  cpu_cores: 1,
  memory_mib: 64,
  restart_policy: 'always',
  ports: [],
  log_cap_mib: 16,
  health_check: null,
}
const made = (over: Partial<ContainerSpec>, network: string | null): Made => ({
  hostId: 'h',
  spec: { ...spec, ...over },
  configVars: {},
  operationId: 'o',
  image: { id: 'sha256:i', digest: 'sha256:d' },
  ports: [],
  logBacklogMib: 0,
  mostOpenFiles: 1024,
  io: null,
  quotas: false,
  joined: false,
  network,
})
const mount = { host_path: '/run/keelson/doors/c', mount_path: '/run/keelson', read_only: true }

test('a runner has no network, no capabilities, no writable file system and no user of its host', () => {
  const { User, Labels, HostConfig } = createOptions(
    made({ runner: 'r', mounts: [mount] }, 'none'),
    '127.0.0.1',
  )
  expect({ User, runner: Labels?.['keelson.runner'] }).toEqual({ User: '65534:65534', runner: 'r' })
  expect(HostConfig).toMatchObject({
    NetworkMode: 'none',
    CapDrop: ['ALL'],
    SecurityOpt: ['no-new-privileges'],
    ReadonlyRootfs: true,
    PidsLimit: 256,
    Tmpfs: { '/tmp': 'rw,noexec,nosuid,nodev,size=16m' },
    Mounts: [{ Type: 'bind', Source: mount.host_path, Target: '/run/keelson', ReadOnly: true }],
  })
  expect(HostConfig?.CapAdd).toBeUndefined()
})

test('a runner may use a whole core, and has its share of the cores when others want them', () => {
  const size = { cpu_cores: 0.25, memory_mib: 64 }
  expect(sizeLimits({ ...size, runner: 'r' })).toMatchObject({ NanoCpus: 1e9, CpuShares: 256 })
  expect(sizeLimits({ ...size, cpu_cores: 2, runner: 'r' })).toMatchObject({ NanoCpus: 2e9, CpuShares: 2048 })
  expect(sizeLimits(size)).toEqual({ NanoCpus: 0.25e9, Memory: 2 ** 26, MemorySwap: 2 ** 26 })
})

describe('another container', () => {
  test('has none of this', () => {
    const { User, Labels, HostConfig } = createOptions(made({}, null), '127.0.0.1')
    expect([User, Labels?.['keelson.runner'], HostConfig?.ReadonlyRootfs, HostConfig?.Tmpfs]).toEqual(
      Array(4).fill(undefined),
    )
    expect(HostConfig?.CapDrop).not.toContain('ALL')
  })

  test('has another hash: one that becomes a runner, or that of another runner, is made anew', () => {
    expect(specHash({ ...spec, runner: 'r' }, { A: '1' }, 'sha256:d')).not.toBe(
      specHash(spec, { A: '1' }, 'sha256:d'),
    )
    expect(specHash({ ...spec, runner: 'r' }, { A: '1' }, 'sha256:d')).not.toBe(
      specHash({ ...spec, runner: 's' }, { A: '1' }, 'sha256:d'),
    )
  })
})
