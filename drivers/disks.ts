/** A disk as found on its host. */
export interface FoundDisk {
  id: string
  size_bytes: number
  /** Bytes used on the host, including snapshots. */
  allocated_bytes: number
  /**
   * `broken`: attached, but the process that serves it has ended; attaching it again repairs it. `failing`: attached, but
   * writes to it fail; attaching it again repairs it if the host's storage has free space.
   */
  state: 'detached' | 'attached' | 'broken' | 'failing' | 'migrating'
  /** Oldest first. */
  snapshots: FoundSnapshot[]
}

export interface FoundSnapshot {
  name: string
  size_bytes: number
  allocated_bytes: number
  /** RFC 3339, UTC. */
  taken_at: string
}

/** Everything on the host that carries a disk's id, for finding orphans. */
export interface DiskTraces {
  id: string
  files: string[]
  /** Process ids. */
  processes: number[]
  /** `/dev/loop0`, … */
  loop_devices: string[]
  /** Mount points, as this process sees them. */
  mounts: string[]
}

export interface DiskSpec {
  /** `a-z`, `0-9` and `-`. */
  id: string
  size_gib: number
  /** Copy the content of this snapshot. The new disk does not depend on the old one. */
  from?: { disk_id: string; snapshot: string }
}

/** A running container, by the pid that its engine reports. */
export interface AttachedTo {
  pid: number
  /** Absolute path inside the container; missing folders are made. */
  mount_path: string
  read_only?: boolean
}

/** Space of the file system that holds the disks. */
export interface Space {
  size_bytes: number
  free_bytes: number
  used_bytes: number
  promised_bytes: number
}

export interface Watching {
  /** 0 to 100. */
  onProgress?: ((percent: number) => void) | undefined
  /** An aborted call leaves nothing behind and throws the signal's reason. */
  signal?: AbortSignal | undefined
}

/**
 * Disks of one host, each with a file system. All calls are idempotent by the disk's id: after a crash, repeat the
 * call. Calls for one disk run one after another; two processes must not share a folder. All calls can also throw
 * HostNotEquipped and EngineUnavailable.
 */
export type Disks = DiskImages & DiskAttachments

/** What is on the host. */
export interface DiskImages {
  /** Makes and formats the disk; an existing disk stays unchanged. Throws HostDiskFull, SnapshotNotFound. */
  create(spec: DiskSpec, watching?: Watching): Promise<FoundDisk>
  find(id: string): Promise<FoundDisk | null>
  /** Everything on this host, whole disks and leftovers. */
  list(): Promise<DiskTraces[]>
  /**
   * Grows the disk, attached or not. Throws DiskNotFound, DiskMigrating, HostDiskFull; EngineRefused for a smaller
   * size.
   */
  resize(id: string, sizeGib: number): Promise<FoundDisk>
  /** Removes the disk and its snapshots. Succeeds if there is no disk. Throws DiskAttached, DiskMigrating. */
  remove(id: string): Promise<void>
  /**
   * Keeps the disk's present content under a name; writers wait for some milliseconds. Succeeds if the name exists.
   * Throws DiskNotFound, DiskMigrating, HostDiskFull.
   */
  snapshot(id: string, name: string): Promise<FoundSnapshot>
  /** Succeeds if there is no such snapshot. */
  removeSnapshot(id: string, name: string): Promise<void>
  /**
   * `used_bytes` is what disks and snapshots use; `promised_bytes` is free space that existing disks may still claim,
   * so it must not be allocated again.
   */
  space(): Promise<Space>
}

/** Who has a disk. */
export interface DiskAttachments {
  /**
   * Mounts the disk on the host and, with `to`, in a running container. `host_path` is the folder with its files, for
   * a bind mount in a container that is not created yet; it exists only while the disk is attached. A restarted
   * container loses mounts made while it ran: attach again, or bind `host_path`.
   *
   * If the disk's serving process was killed, or its file system stopped since writes failed, attaching restores every mount
   * with all synced data; open files stay broken. Throws DiskNotFound, DiskMigrating, InstanceNotFound; EngineRefused if the path cannot be a mount point.
   */
  attach(id: string, to?: AttachedTo): Promise<{ host_path: string }>
  /**
   * Serves the disk to one machine on this host over a unix socket (NBD, export `disk`) until `detach`. If the serving
   * process was killed, it is restarted and the machine reconnects. Throws DiskNotFound, DiskMigrating; DiskAttached
   * if the disk is mounted.
   */
  plug(id: string, machineId: string): Promise<{ socket: string }>
  /**
   * Unmounts the disk everywhere, or stops serving it. Succeeds if it is not attached. Throws DiskInUse, and then it
   * is still attached.
   */
  detach(id: string): Promise<void>
}

/** Where another host reads a disk. The key is a secret: it gives read access to the disk. */
export interface DiskSource {
  address: string
  port: number
  key: string
  size_bytes: number
  /** Each with the bytes it uses on its host. `snapshot` is null for the disk itself. */
  contents: { snapshot: string | null; allocated_bytes: number }[]
}

/** Moves a disk between hosts: the old host serves it, the new one pulls it. */
export interface DiskTransfers {
  /**
   * Lets another host read a disk and its snapshots, encrypted, for at most `seconds`. A repeated call starts again
   * with a new key. Throws DiskNotFound, DiskAttached.
   */
  serve(id: string, seconds: number): Promise<DiskSource>
  /** Succeeds if nothing is served. */
  stopServing(id: string): Promise<void>
  /**
   * Copies the disk from the source. After its checksum is verified, it replaces an older copy on this host.
   * `bytesPerSec` limits reading from the source. Throws DiskAttached, HostDiskFull.
   */
  pull(id: string, from: DiskSource, options?: Watching & { bytesPerSec?: number }): Promise<FoundDisk>
}
