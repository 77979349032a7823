import type { Fault, Path } from './text.ts'

// Keys of compose files that are refused, each with its reason: what would break out of a service, and what has a meaning
// that services do not have. A key in no table here is refused too.

export type Keys = Record<string, unknown>

const breaksOut = 'is not allowed: it reaches outside of the container'
const inText = 'is not supported: everything must be in this text'

/** Refused with any value but those named. */
const refused: Record<string, { message: string; unless?: unknown[] }> = {
  privileged: { message: breaksOut, unless: [false] },
  network_mode: { message: breaksOut },
  pid: { message: breaksOut },
  ipc: { message: breaksOut },
  uts: { message: breaksOut },
  userns_mode: { message: breaksOut },
  cgroup: { message: breaksOut },
  cgroup_parent: { message: breaksOut },
  device_cgroup_rules: { message: breaksOut },
  devices: { message: breaksOut },
  gpus: { message: breaksOut },
  blkio_config: { message: breaksOut },
  sysctls: { message: breaksOut },
  security_opt: { message: breaksOut },
  runtime: { message: breaksOut },
  isolation: { message: breaksOut },
  credential_spec: { message: breaksOut },
  storage_opt: { message: breaksOut },
  mac_address: { message: breaksOut },
  oom_kill_disable: { message: breaksOut, unless: [false] },
  oom_score_adj: { message: breaksOut },
  use_api_socket: { message: breaksOut, unless: [false] },
  volumes_from: { message: breaksOut },
  external_links: { message: breaksOut },
  extra_hosts: { message: breaksOut },
  build: { message: 'is not supported: build the image first, and name it' },
  develop: { message: inText },
  extends: { message: inText },
  env_file: { message: inText },
  label_file: { message: inText },
  secrets: { message: 'is not supported: use an environment variable such as ${SERVICE_PASSWORD_NAME}' },
  init: { message: 'must be true: each container has an init process', unless: [true] },
  scale: { message: 'must be 1: an application has replicas, a service does not', unless: [1] },
  profiles: { message: 'is not supported: all containers are started' },
  logging: { message: 'is not supported: the platform keeps the output' },
  links: { message: 'is not supported: containers reach each other by their names' },
  pull_policy: { message: 'is not supported', unless: ['missing', 'if_not_present'] },
}

/** They change nothing here, so they may be there: who reads labels reads them elsewhere, and all ports are open within. */
const harmless = new Set(['annotations', 'expose', 'labels'])

/** The refusals of keys that `known` does not have. `x-` keys are anyone's. */
export function faultsOfKeys(keys: Keys, known: ReadonlySet<string>, path: Path): Fault[] {
  return Object.entries(keys).flatMap(([key, value]) => {
    if (known.has(key) || harmless.has(key) || key.startsWith('x-') || value === null) return []
    const rule = refused[key]
    if (rule?.unless?.includes(value)) return []
    return [{ path: [...path, key], message: rule?.message ?? 'is not supported' }]
  })
}

/** What the engine gives to containers anyway. */
const capabilities = new Set(
  'AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT'.split(
    ' ',
  ),
)

/** `CAP_CHOWN` → `CHOWN` */
export const capabilityOf = (name: string): string => name.toUpperCase().replace(/^CAP_/, '')

export const faultsOfCapabilities = (names: string[], path: Path): Fault[] =>
  names.flatMap((name, index) =>
    capabilities.has(capabilityOf(name))
      ? []
      : [
          {
            path: [...path, index],
            message: `${name} is not allowed: containers can have only their default capabilities`,
          },
        ],
  )

/** Why a mount's source is refused. Null: it may be the name of a volume. */
export function faultOfSource(source: string): string | null {
  if (/docker\.sock|containerd\.sock/.test(source)) return 'the engine’s socket is not allowed'
  if (/^[A-Za-z0-9][\w.-]*$/.test(source)) return null
  return 'a path of the host is not allowed: name a volume, or give the file as a config with its content'
}
