/**
 * What an engine could not do. `code` is stable: it becomes the operation's problem `code`. A permanent
 * fault is the same however often it is tried; the message is for the tenant and names nothing of the host.
 */
export abstract class EngineError extends Error {
  abstract readonly code: string
  abstract readonly permanent: boolean
}

/** `silent`: the registry gave no answer, so whether it has the image is not known. */
export class ImageNotFound extends EngineError {
  override readonly name = 'ImageNotFound'
  readonly code = 'image_not_found'
  readonly permanent = true
  readonly image: string
  constructor(image: string, cause?: unknown, registry: 'refuses' | 'silent' = 'refuses') {
    super(
      registry === 'silent'
        ? `The host does not have the image ${image}, and its registry does not answer`
        : `The image ${image} does not exist, or access to it is denied`,
      { cause },
    )
    this.image = image
  }
}

export class PortInUse extends EngineError {
  override readonly name = 'PortInUse'
  readonly code = 'port_in_use'
  readonly permanent = true
  readonly port: number | null
  constructor(port: number | null, cause?: unknown) {
    super(port === null ? 'The host has no free port' : `The host port ${port} is in use`, { cause })
    this.port = port
  }
}

/** The engine could not start the command, or it ended at once. */
export class CommandFailed extends EngineError {
  override readonly name = 'CommandFailed'
  readonly code: 'command_not_started' | 'exited_at_once'
  readonly permanent = true
  readonly exitCode: number | null
  constructor(
    code: 'command_not_started' | 'exited_at_once',
    message: string,
    exitCode: number | null,
    cause?: unknown,
  ) {
    super(message, { cause })
    this.code = code
    this.exitCode = exitCode
  }
}

/** The engine does not answer, or failed inside: worth another try. */
export class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable'
  readonly code = 'engine_unavailable'
  readonly permanent = false
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** The engine has no such instance, or one of that name that is not this platform's. */
export class InstanceNotFound extends EngineError {
  override readonly name = 'InstanceNotFound'
  readonly code = 'instance_not_found'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The instance is not on its host', { cause })
    this.id = id
  }
}

/** What is asked for needs an instance that runs. */
export class InstanceNotRunning extends EngineError {
  override readonly name = 'InstanceNotRunning'
  readonly code = 'instance_not_running'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The instance is not running', { cause })
    this.id = id
  }
}

/** A suspended machine's memory cannot be used, now or ever: the machine can only start from its root disk. */
export class MemoryUnusable extends EngineError {
  override readonly name = 'MemoryUnusable'
  readonly code = 'memory_unusable'
  readonly permanent = true
  constructor(because: string, cause?: unknown) {
    super(`The machine’s memory cannot be used: ${because}`, { cause })
  }
}

/** The engine understood what was asked and will not do it. What it said is in the cause. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused'
  readonly code = 'engine_refused'
  readonly permanent = true
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/**
 * The host's worker may not change networks: it has to run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN, on a state
 * folder that dnsmasq can enter.
 */
export class NotPermitted extends EngineError {
  override readonly name = 'NotPermitted'
  readonly code = 'host_not_permitted'
  readonly permanent = true
  constructor(cause?: unknown) {
    super('The host’s worker lacks the permission to change networks', { cause })
  }
}

/** The kernel or the resolver did not do it. What it said is in the cause. Worth another try. */
export class NetworkFailed extends EngineError {
  override readonly name = 'NetworkFailed'
  readonly code = 'network_failed'
  readonly permanent = false
  constructor(cause?: unknown) {
    super('The host could not set up its network', { cause })
  }
}

/** Nothing can be attached to it until it is applied. */
export class SubnetNotOnHost extends EngineError {
  override readonly name = 'SubnetNotOnHost'
  readonly code = 'subnet_not_on_host'
  readonly permanent = false
  readonly subnet_id: string
  constructor(subnetId: string, cause?: unknown) {
    super('The subnet is not on this host', { cause })
    this.subnet_id = subnetId
  }
}

export class DiskNotFound extends EngineError {
  override readonly name = 'DiskNotFound'
  readonly code = 'disk_not_found'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The disk is not on its host', { cause })
    this.id = id
  }
}

export class SnapshotNotFound extends EngineError {
  override readonly name = 'SnapshotNotFound'
  readonly code = 'snapshot_not_found'
  readonly permanent = true
  readonly snapshot: string
  constructor(snapshot: string, cause?: unknown) {
    super(`The disk has no snapshot ${snapshot}`, { cause })
    this.snapshot = snapshot
  }
}

/** What was asked for needs a disk that nothing uses. */
export class DiskAttached extends EngineError {
  override readonly name = 'DiskAttached'
  readonly code = 'disk_attached'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The disk is attached to an instance', { cause })
    this.id = id
  }
}

/** Another host reads the disk, which must stay as it is meanwhile. */
export class DiskMigrating extends EngineError {
  override readonly name = 'DiskMigrating'
  readonly code = 'disk_migrating'
  readonly permanent = true
  readonly id: string
  constructor(id: string, cause?: unknown) {
    super('The disk is migrating', { cause })
    this.id = id
  }
}

/** A process of the instance has a file open there, or its working folder. */
export class DiskInUse extends EngineError {
  override readonly name = 'DiskInUse'
  readonly code = 'disk_in_use'
  readonly permanent = true
  readonly mountPath: string
  constructor(mountPath: string, cause?: unknown) {
    super(`The instance still has files open below ${mountPath}`, { cause })
    this.mountPath = mountPath
  }
}

/** All disks of the host, filled to their sizes, would not fit beside what is asked for; or a machine's memory does not. */
export class HostDiskFull extends EngineError {
  override readonly name = 'HostDiskFull'
  readonly code = 'host_disk_full'
  readonly permanent = true
  constructor(cause?: unknown, what = 'the disk') {
    super(`The host has too little free space for ${what}`, { cause })
  }
}

/** A program or a device that the work needs is missing on the host. */
export class HostNotEquipped extends EngineError {
  override readonly name = 'HostNotEquipped'
  readonly code = 'host_not_equipped'
  readonly permanent = true
  readonly missing: string
  constructor(missing: string, cause?: unknown) {
    super(`The host lacks ${missing}`, { cause })
    this.missing = missing
  }
}
