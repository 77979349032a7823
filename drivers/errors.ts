/**
 * An engine failure. `code` is stable: it becomes the operation's problem `code`. A permanent failure repeats at every
 * retry. The message is for the tenant and contains no details of the host.
 */
export abstract class EngineError extends Error {
  abstract readonly code: string
  abstract readonly permanent: boolean
}

/**
 * The registry does not have the image, refuses it or is silent. The message does not tell which: a name may lead to a
 * private address, about which the tenant learns nothing. The cause tells.
 */
export class ImageNotFound extends EngineError {
  override readonly name = 'ImageNotFound'
  readonly code = 'image_not_found'
  readonly permanent = true
  readonly image: string
  constructor(image: string, cause?: unknown) {
    super(`There is no image ${image}, access to it is denied, or its registry does not answer`, { cause })
    this.image = image
  }
}

/** The registry asks for a login, or refuses the one that it got. */
export class ImageAccessDenied extends EngineError {
  override readonly name = 'ImageAccessDenied'
  readonly code = 'image_access_denied'
  readonly permanent = true
  readonly image: string
  constructor(image: string, hasLogin: boolean, cause?: unknown) {
    super(
      hasLogin
        ? `The registry refuses the tenant’s credentials for the image ${image}`
        : `The registry asks for credentials for the image ${image}, and the tenant has none for this registry`,
      { cause },
    )
    this.image = image
  }
}

/** The image has more bytes than the host takes. */
export class ImageTooLarge extends EngineError {
  override readonly name = 'ImageTooLarge'
  readonly code = 'image_too_large'
  readonly permanent = true
  readonly image: string
  constructor(image: string, mostBytes: number) {
    super(`The image ${image} is larger than ${Math.round((mostBytes / 1024 ** 3) * 100) / 100} GiB`)
    this.image = image
  }
}

/** The image of something that the platform offers cannot be had. The message of the cause says why. */
export class ImageUnavailable extends EngineError {
  override readonly name = 'ImageUnavailable'
  readonly code = 'image_unavailable'
  readonly permanent = true
  readonly image: string
  constructor(cause: ImageNotFound) {
    super(cause.message, { cause })
    this.image = cause.image
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

/** A port that the host does not publish: it is outside its range, or reserved. */
export class PortNotAllowed extends EngineError {
  override readonly name = 'PortNotAllowed'
  readonly code = 'port_not_allowed'
  readonly permanent = true
  readonly port: number
  constructor(port: number) {
    super(`The host does not publish the port ${port}: it is outside its range, or reserved`)
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

/** The engine does not answer, or had an internal error. Retry. */
export class EngineUnavailable extends EngineError {
  override readonly name = 'EngineUnavailable'
  readonly code = 'engine_unavailable'
  readonly permanent = false
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** The engine has no such instance, or the instance of that name is not this platform's. */
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

/** The call needs a running instance. */
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

/** A suspended machine's memory can never be used again: the machine can only start from its root disk. */
export class MemoryUnusable extends EngineError {
  override readonly name = 'MemoryUnusable'
  readonly code = 'memory_unusable'
  readonly permanent = true
  constructor(because: string, cause?: unknown) {
    super(`The machine’s memory cannot be used: ${because}`, { cause })
  }
}

/** The host lacks the kernel with which the machine was made, or the kernel's bytes have changed. */
export class KernelMissing extends EngineError {
  override readonly name = 'KernelMissing'
  readonly code = 'kernel_missing'
  readonly permanent = true
  readonly digest: string
  constructor(digest: string) {
    super(`The host lacks the kernel ${digest}, with which the machine was made`)
    this.digest = digest
  }
}

/** The engine understood the request and refused it. The cause has its answer. */
export class EngineRefused extends EngineError {
  override readonly name = 'EngineRefused'
  readonly code = 'engine_refused'
  readonly permanent = true
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** A service does not come to serve: the message says why, or that its time is over. */
export class ServiceFailed extends EngineError {
  override readonly name = 'ServiceFailed'
  readonly code = 'service_failed'
  readonly permanent = true
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** A database does not carry out a command of the platform: it may be starting, or busy. */
export class DatabaseRefused extends EngineError {
  override readonly name = 'DatabaseRefused'
  readonly code = 'database_refused'
  readonly permanent = false
  constructor(said: string) {
    super(`The database refused: ${said}`)
  }
}

/** An image could not be built. The message says why, as far as it is known. */
export class BuildFailed extends EngineError {
  override readonly name = 'BuildFailed'
  readonly code:
    | 'build_failed'
    | 'build_timed_out'
    | 'artifact_gone'
    | 'nothing_recognised'
    | 'builder_unavailable'
  readonly permanent = true
  constructor(message: string, code: BuildFailed['code'] = 'build_failed', cause?: unknown) {
    super(message, { cause })
    this.code = code
  }
}

/** A copy of a database cannot be read back as it was written. The message says where. */
export class BackupDamaged extends EngineError {
  override readonly name = 'BackupDamaged'
  readonly code = 'backup_damaged'
  readonly permanent = true
  constructor(because: string, cause?: unknown) {
    super(`The backup is damaged: ${because}`, { cause })
  }
}

/** A copy of a database could not be written or restored. The message says why. */
export class BackupFailed extends EngineError {
  override readonly name = 'BackupFailed'
  readonly code = 'backup_failed'
  readonly permanent = true
  constructor(because: string, cause?: unknown) {
    super(because.charAt(0).toUpperCase() + because.slice(1), { cause })
  }
}

/** The certificate authority refused. The message names the domain, if there is one, and quotes the authority. */
export class AuthorityRefused extends EngineError {
  override readonly name = 'AuthorityRefused'
  readonly code = 'authority_refused'
  readonly permanent = true
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
  }
}

/** The authority does not know the account, although it was registered. Register the key again. */
export class AccountUnknown extends EngineError {
  override readonly name = 'AccountUnknown'
  readonly code = 'authority_account_unknown'
  readonly permanent = false
  constructor() {
    super('The certificate authority does not know the account')
  }
}

/** The certificate authority does not answer, or has an internal error. Retry. */
export class AuthorityUnavailable extends EngineError {
  override readonly name = 'AuthorityUnavailable'
  readonly code = 'authority_unavailable'
  readonly permanent = false
  constructor(because: string, cause?: unknown) {
    super(`The certificate authority is unavailable: ${because}`, { cause })
  }
}

/**
 * The host's worker may not change networks: it must run as root with CAP_NET_ADMIN and CAP_SYS_ADMIN, with a state
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

/** The kernel or the resolver failed. The cause has its answer. Retry. */
export class NetworkFailed extends EngineError {
  override readonly name = 'NetworkFailed'
  readonly code = 'network_failed'
  readonly permanent = false
  constructor(cause?: unknown) {
    super('The host could not set up its network', { cause })
  }
}

/** The subnet must be applied before anything is attached to it. */
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

/**
 * The host cannot guarantee the space: all its disks, filled to their sizes, would not fit with the new one. Also
 * thrown for a machine's memory, and for an image.
 */
export class HostDiskFull extends EngineError {
  override readonly name = 'HostDiskFull'
  readonly code = 'host_disk_full'
  readonly permanent = true
  constructor(cause?: unknown, what = 'the disk') {
    super(`The host has too little free space for ${what}`, { cause })
  }
}

/** The host lacks a program or a device. */
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

/** Of the hosts with members of a VPC, some are set to a tunnel between them and some are not. */
export class HostsApart extends EngineError {
  override readonly name = 'HostsApart'
  readonly code = 'hosts_apart'
  readonly permanent = true
  constructor() {
    super(
      'The hosts with members of this VPC use different tunnels: an operator must set KEELSON_NETWORK_TUNNEL to the same value on all hosts',
    )
  }
}

/** What a tenant has sent is no archive, or has in it what is not taken. */
export class ArchiveRefused extends EngineError {
  override readonly name = 'ArchiveRefused'
  readonly code = 'archive_refused'
  readonly permanent = true
  constructor(why: string, cause?: unknown) {
    super(`The archive is refused: ${why}`, { cause })
  }
}

/** The disk of a machine has no room for it. */
export class MachineDiskFull extends EngineError {
  override readonly name = 'MachineDiskFull'
  readonly code = 'worker_disk_full'
  readonly permanent = true
  constructor(cause?: unknown) {
    super('The disk of the worker is full', { cause })
  }
}

/** A text has more tokens than the embedder reads; the rest would be missing in its vector. */
export class TextTooLong extends EngineError {
  override readonly name = 'TextTooLong'
  readonly code = 'text_too_long'
  readonly permanent = true
  /** Among the texts of the call. */
  readonly index: number
  /** Null: too long to be counted. */
  readonly tokens: number | null
  readonly most_tokens: number
  constructor(index: number, tokens: number | null, most_tokens: number) {
    super(
      `Text ${index} has ${tokens ?? 'far more'} tokens${tokens === null ? ' than' : ', and the model reads'} ${most_tokens}`,
    )
    this.index = index
    this.tokens = tokens
    this.most_tokens = most_tokens
  }
}

/** The files of an embedder are missing or damaged, or its thread has ended. The cause tells. */
export class EmbedderUnavailable extends EngineError {
  override readonly name = 'EmbedderUnavailable'
  readonly code = 'embedder_unavailable'
  readonly permanent = false
}
