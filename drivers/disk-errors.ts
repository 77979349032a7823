import { EngineError } from './errors.ts'

/** A machine wrote the disk, so the host's kernel must not mount it. */
export class DiskNotMountable extends EngineError {
  override readonly name = 'DiskNotMountable'
  readonly code = 'disk_written_by_machine'
  readonly permanent = true
  readonly disk: string
  constructor(disk: string) {
    super('A machine may have written to the disk, so no container can mount it')
    this.disk = disk
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

/** The call needs a disk that is not in use. */
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

/** Another host is reading the disk, so it must not change. */
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

/** A process of the instance has an open file or its working directory on the disk. */
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
