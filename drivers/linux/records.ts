import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Names } from './names.ts'
import type { NicSpec, PathSpec, SubnetSpec } from '../networks.ts'

// Descriptions of what was last requested, in files; the kernel's state follows them. A record is written before a
// thing is made and removed after it is gone, so everything has a record, even after a crash.

export class Records {
  readonly #folder: string
  readonly #names: Names

  constructor(folder: string, names: Names) {
    this.#folder = folder
    this.#names = names
  }

  /** The folder with all files of a subnet. */
  subnetFolder = (id: string): string => join(this.#folder, 'subnets', this.#names.bridge(id))
  get subnetsFolder(): string {
    return join(this.#folder, 'subnets')
  }

  #subnetFile = (id: string): string => join(this.subnetFolder(id), 'subnet.json')
  #nicFile = (id: string): string => join(this.#folder, 'nics', `${this.#names.nic(id)}.json`)
  #pathFile = (id: string): string => join(this.#folder, 'paths', `${this.#names.path(id)}.json`)

  saveSubnet = (spec: SubnetSpec): Promise<void> =>
    writeIfOther(this.#subnetFile(spec.id), JSON.stringify(spec))
  saveNic = (spec: NicSpec): Promise<void> => writeIfOther(this.#nicFile(spec.id), JSON.stringify(spec))

  savePath = (spec: PathSpec): Promise<void> => writeIfOther(this.#pathFile(spec.id), JSON.stringify(spec))

  subnet = (id: string): Promise<SubnetSpec | null> => read<SubnetSpec>(this.#subnetFile(id))
  nic = (id: string): Promise<NicSpec | null> => read<NicSpec>(this.#nicFile(id))

  path = (id: string): Promise<PathSpec | null> => read<PathSpec>(this.#pathFile(id))

  async subnets(): Promise<SubnetSpec[]> {
    const folders = await entries(this.subnetsFolder)
    return present(folders.map((folder) => read<SubnetSpec>(join(this.subnetsFolder, folder, 'subnet.json'))))
  }

  nics = (): Promise<NicSpec[]> => this.#all<NicSpec>('nics')
  paths = (): Promise<PathSpec[]> => this.#all<PathSpec>('paths')

  async #all<T>(kind: string): Promise<T[]> {
    const folder = join(this.#folder, kind)
    return present((await entries(folder)).map((file) => read<T>(join(folder, file))))
  }

  removeSubnet = (id: string): Promise<void> => rm(this.subnetFolder(id), { recursive: true, force: true })
  removeNic = (id: string): Promise<void> => rm(this.#nicFile(id), { force: true })
  removePath = (id: string): Promise<void> => rm(this.#pathFile(id), { force: true })

  /** All files, readable or not. */
  async files(): Promise<string[]> {
    const kinds = ['subnets', 'nics', 'paths']
    const names = await Promise.all(kinds.map((kind) => entries(join(this.#folder, kind))))
    return kinds.flatMap((kind, index) => (names[index] ?? []).map((name) => join(this.#folder, kind, name)))
  }
}

const entries = (folder: string): Promise<string[]> => readdir(folder).catch(() => [])

const read = <T>(file: string): Promise<T | null> =>
  readFile(file, 'utf8').then(
    (text) => JSON.parse(text) as T,
    () => null,
  )

const present = async <T>(found: Promise<T | null>[]): Promise<T[]> =>
  (await Promise.all(found)).filter((one) => one !== null)

/** Writes the file atomically: no reader sees a half. */
export async function writeIfOther(file: string, text: string): Promise<void> {
  if ((await readFile(file, 'utf8').catch(() => null)) === text) return
  await mkdir(dirname(file), { recursive: true, mode: 0o755 })
  await writeFile(`${file}.new`, text, { mode: 0o644 })
  await rename(`${file}.new`, file)
}
