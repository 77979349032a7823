import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'

// Images that are built inside machines, and the registries that keep them. As in swarms.ts, every call names the machine
// whose engine it asks.

export interface BuildOrder {
  /** The platform's id of the build. */
  id: string
  /** The folder of files on the machine. */
  folder: string
  /** A path below the folder, or the text of one that is not in it. */
  dockerfile: { path: string } | { text: string; ignore: string }
  /** The name of the image, with its registry and tag. */
  reference: string
  target: string | null
  build_args: Record<string, string>
  /** Steps of the Dockerfile mount them. They are only in the memory of the builder. */
  secrets: Record<string, string>
  timeout_sec: number
}

/** Builds on machines. A machine builds one image at a time; the others wait. */
export interface ImageBuilds {
  /**
   * Builds an image, and calls `built` before another build can begin. The build ends when this call ends, also if this
   * process is killed. `onLine` gets each line of its output. Throws BuildFailed, MachineDiskFull, EngineUnavailable.
   */
  run<T>(
    machineId: string,
    order: BuildOrder,
    built: () => Promise<T>,
    onLine: (line: string) => void,
    signal?: AbortSignal,
  ): Promise<T>
  /** Runs work while no build runs. */
  between<T>(machineId: string, work: () => Promise<T>): Promise<T>
  /** Ends a build that may still run, and removes what it has left. */
  end(machineId: string, id: string): Promise<void>
  /** Removes the oldest results of steps until at most this much is left. */
  prune(machineId: string, cacheBytes: number): Promise<void>
}

export interface RegistrySpec {
  image: string
  /** The address of its machine at which it listens. */
  ip_address: string
  port: number
  /** All who may pull and push. */
  users: { name: string; password: string }[]
}

/** The registry of a machine: a container with a volume. */
export interface MachineRegistries {
  /** Makes the registry, or finds it; makes it anew with its images if the spec has changed. */
  ensure(machineId: string, spec: RegistrySpec, signal?: AbortSignal): Promise<void>
  /** Pushes an image of the machine's engine, as the first user. */
  push(machineId: string, spec: RegistrySpec, reference: string, signal?: AbortSignal): Promise<PushedImage>
  /**
   * Removes images, also from the engine, unless another one with the same digest is kept, and what interrupted pushes have
   * left. No build may push meanwhile. False: somebody else pushes, and nothing was removed.
   */
  remove(
    machineId: string,
    spec: RegistrySpec,
    images: TaggedImage[],
    kept: { digests: string[]; images: TaggedImage[]; tags: string[] },
  ): Promise<boolean>
  /** Passes a request on to the registry’s own API, as the first user. Its answer is not read yet. */
  relay(machineId: string, spec: RegistrySpec, request: RegistryRequest): Promise<IncomingMessage>
}

/**
 * Copies images from one registry to another, both reached from this machine, which has the second one: what is there is
 * not sent again, and digests stay as they are. Returns the tags of those that are there then: an image that the first one
 * no longer has is left out. Nothing may be removed from the second one meanwhile. Throws MachineDiskFull,
 * EngineUnavailable.
 */
export type CopyImages = (
  machineId: string,
  ends: { from: RegistrySpec; to: RegistrySpec },
  wanted: {
    images: (TaggedImage & { digest: string })[]
    /** The names of images that may share layers with these. */
    names: string[]
  },
  signal?: AbortSignal,
) => Promise<string[]>

export interface RegistryRequest {
  method: string
  path: string
  headers: Record<string, string>
  body: Readable
  signal: AbortSignal
  /** The image that is pushed. Null: the request only reads. `last`: the push ends with it. */
  pushes: { image: string; last: boolean } | null
}

/**
 * Removes images that came by their digest, are older than a day, and that no container of the machine uses: the registry
 * has those that are needed again.
 */
export type ForgetImages = (machineId: string) => Promise<void>

export interface TaggedImage {
  image: string
  tag: string
}

export interface PushedImage {
  digest: string
  /** As the engine has it. */
  size_bytes: number
}

/**
 * Has the engine of a machine have an image that the engine of its host has. `absent`: neither has it; the machine's
 * engine then asks the image's registry.
 */
export type CopyImage = (
  machineId: string,
  image: string,
  signal?: AbortSignal,
) => Promise<'there' | 'copied' | 'absent'>

/** Nixpacks, which makes Dockerfiles for files without one, by the operator's image of it. */
export interface Nixpacks {
  /**
   * Makes a Dockerfile, and a folder for the build that has the files and those that the Dockerfile needs. `remove` removes
   * it. Throws BuildFailed: `nothing_recognised`, `builder_unavailable`; MachineDiskFull, EngineUnavailable.
   */
  plan(machineId: string, order: NixpacksOrder, signal?: AbortSignal): Promise<NixpacksPlan>
  remove(machineId: string, id: string): Promise<void>
}

export interface NixpacksOrder {
  /** The platform's id of the build. */
  id: string
  folder: string
  /** Has the program `nixpacks`. */
  image: string
  /** On which its Dockerfiles build. Null: its own choice. */
  base_image: string | null
}

export interface NixpacksPlan {
  folder: string
  text: string
  build_args: Record<string, string>
  /** Its output. */
  said: string[]
}

/** Small text files of a folder on a machine. */
export interface FoundFiles {
  /** Paths of all files to a depth of two folders; at most 2000. */
  paths: string[]
  /** Of those files that were asked for and are there. */
  texts: Record<string, string>
}
export type ReadFolder = (machineId: string, folder: string, files: string[]) => Promise<FoundFiles>
