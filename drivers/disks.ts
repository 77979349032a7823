/** A disk as its host has it. */
export interface FoundDisk {
  id: string
  size_bytes: number
  /** What it takes on the host, its snapshots included. */
  allocated_bytes: number
  /** `broken`: attached, but the process that serves it has ended. Attaching it again brings it back. */
  state: 'detached' | 'attached' | 'broken' | 'migrating'
  /** By age, the oldest first. */
  snapshots: FoundSnapshot[]
}

export interface FoundSnapshot {
  name: string
  size_bytes: number
  allocated_bytes: number
  /** RFC 3339, UTC. */
  taken_at: string
}

/** Everything on the host that bears a disk's id, for the search of orphans. */
export interface DiskTraces {
  id: string
  files: string[]
  /** Process ids. */
  processes: number[]
  /** `/dev/loop0`, … */
  loop_devices: string[]
  /** Where something is mounted, as this process sees it. */
  mounts: string[]
}

export interface DiskSpec {
  /** `a-z`, `0-9` and `-`. */
  id: string
  size_gib: number
  /** Begin with what this snapshot holds. The new disk depends on nothing of the old one. */
  from?: { disk_id: string; snapshot: string }
}

/** A running container: the process that its engine calls the container's. */
export interface AttachedTo {
  pid: number
  /** Absolute, as seen inside; folders that are missing are made. */
  mount_path: string
  read_only?: boolean
}

/** Of the file system with the disks. */
export interface Space {
  size_bytes: number
  free_bytes: number
  used_bytes: number
  promised_bytes: number
}

export interface Watching {
  /** 0 to 100. */
  onProgress?: ((percent: number) => void) | undefined
  /** An aborted call leaves nothing and throws the signal's reason. */
  signal?: AbortSignal | undefined
}

/**
 * Disks of one host, each with a file system. All calls are idempotent by the disk's id: who was killed in the
 * middle of one asks again. Calls for one disk go one after another; two processes must not share a folder.
 * Beside what is said, all throw HostNotEquipped and EngineUnavailable.
 */
export interface Disks {
  /** Makes and formats it; one that is there already is left as it is. Throws HostDiskFull, SnapshotNotFound. */
  create(spec: DiskSpec, watching?: Watching): Promise<FoundDisk>
  find(id: string): Promise<FoundDisk | null>
  /** Whatever there is, whole disks and leftovers. */
  list(): Promise<DiskTraces[]>
  /** Grows it, attached or not. Throws DiskNotFound, DiskMigrating, HostDiskFull; EngineRefused for a smaller size. */
  resize(id: string, sizeGib: number): Promise<FoundDisk>
  /** With its snapshots. Nothing to remove is success. Throws DiskAttached, DiskMigrating. */
  remove(id: string): Promise<void>
  /**
   * Mounts it on the host, and from there in a container that runs. `host_path` is the folder with its files, for a
   * bind mount in a container that is yet to be made; it does not exist while the disk is not attached. A container's
   * restart forgets what was mounted into it while it ran: attach again, or bind `host_path`.
   *
   * A disk whose serving process was killed is brought back wherever it was mounted, with all that was synced; files
   * that were open stay broken. Throws DiskNotFound, DiskMigrating, InstanceNotFound; EngineRefused when the path
   * cannot be mounted on.
   */
  attach(id: string, to?: AttachedTo): Promise<{ host_path: string }>
  /**
   * Serves it to a machine on this host, over a unix socket (NBD, export `disk`); a serving process that was killed is
   * brought back, and the machine connects again. Ends with `detach`. Throws DiskNotFound, DiskMigrating; DiskAttached
   * where it is mounted.
   */
  plug(id: string): Promise<{ socket: string }>
  /** Unmounts it everywhere, or serves it no more. Nothing to detach is success. Throws DiskInUse; it is attached still then. */
  detach(id: string): Promise<void>
  /**
   * Keeps what it holds at this moment under a name; writers wait for some milliseconds meanwhile. A name that is
   * taken already is success. Throws DiskNotFound, DiskMigrating, HostDiskFull.
   */
  snapshot(id: string, name: string): Promise<FoundSnapshot>
  /** Nothing to remove is success. */
  removeSnapshot(id: string, name: string): Promise<void>
  /**
   * `used_bytes` is what the disks take with their snapshots; `promised_bytes` is what they may still come to take: it is
   * free, and not to be given away.
   */
  space(): Promise<Space>
}

/** Where another host finds a disk. The key is a secret: who has it reads the disk. */
export interface DiskSource {
  address: string
  port: number
  key: string
  size_bytes: number
  /** With what each takes on its host. The disk itself bears no name. */
  contents: { snapshot: string | null; allocated_bytes: number }[]
}

/** How a disk goes from one host to another: the old host serves it, the new one pulls. */
export interface DiskTransfers {
  /**
   * Lets another host read a disk with its snapshots, encrypted, for at most so many seconds. Asked again, it begins anew
   * with another key. Throws DiskNotFound, DiskAttached.
   */
  serve(id: string, seconds: number): Promise<DiskSource>
  /** Nothing served is success. */
  stopServing(id: string): Promise<void>
  /**
   * Copies it from there; once its checksum is right the disk is there, and an older copy on this host is replaced.
   * `bytesPerSec` holds for reading the source. Throws DiskAttached, HostDiskFull.
   */
  pull(id: string, from: DiskSource, options?: Watching & { bytesPerSec?: number }): Promise<FoundDisk>
}
