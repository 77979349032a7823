import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type Docker from 'dockerode'
import { z } from 'zod'
import { makeNamedQueues } from '../../lib/queue.ts'
import type { RegistryLogin } from '../containers.ts'
import { digest as digestOf } from '../system/digest.ts'
import { nullIfMissing, publishText } from '../system/files.ts'
import { repositoryOf } from './images.ts'

// An engine gives an image that it has to everybody who names it. The host therefore notes each repository from which it
// pulls by a tenant's login, and with which logins the registry has let it in since.

export interface PrivateImages {
  /** Notes the repository of an image, before its download by a login begins. */
  note(image: string): Promise<void>
  /** Whether an image on the engine may be used with this login, or without one, unasked. */
  isOpenTo(image: string, login: () => Promise<RegistryLogin | null>): Promise<boolean>
  /** The registry has let this login in; null: everybody. Without a note, nothing is noted. */
  letIn(image: string, login: RegistryLogin | null): Promise<void>
  /** Forgets noted repositories of which the engine has no image. */
  collect(docker: Docker): Promise<void>
}

/** `let_in`: versions of logins, and `everybody`. */
const Note = z.object({ repository: z.string(), let_in: z.array(z.string()) })
type Note = z.infer<typeof Note>
const everybody = 'everybody'

/** `settlesMs`: after a note, a download may run that long. */
export function makePrivateImages(folder: string, settlesMs: number): PrivateImages {
  const inTurn = makeNamedQueues()
  const fileOf = (repository: string): string => join(folder, `${digestOf(repository, 32)}.json`)

  const write = (note: Note): Promise<void> => publishText(fileOf(note.repository), JSON.stringify(note))

  return {
    note: (image) => {
      const repository = familiar(image)
      return inTurn(repository, async () => {
        await mkdir(folder, { recursive: true })
        // Written again in any case: its time says when the last download began.
        await write((await noteOf(fileOf(repository))) ?? { repository, let_in: [] })
      })
    },

    async isOpenTo(image, login) {
      const note = await noteOf(fileOf(familiar(image)))
      if (!note || note.let_in.includes(everybody)) return true
      const version = (await login())?.version
      return version !== undefined && note.let_in.includes(version)
    },

    letIn: (image, login) => {
      const repository = familiar(image)
      return inTurn(repository, async () => {
        const note = await noteOf(fileOf(repository))
        if (note)
          await write({ ...note, let_in: [...new Set([...note.let_in, login?.version ?? everybody])] })
      })
    },

    async collect(docker) {
      const names = (await readdir(folder).catch(nullIfMissing)) ?? []
      if (names.length === 0) return
      const before = Date.now() - settlesMs
      const images = await docker.listImages()
      const there = new Set(
        images.flatMap(({ RepoTags, RepoDigests }) =>
          [...(RepoTags ?? []), ...(RepoDigests ?? [])].map(familiar),
        ),
      )
      for (const file of names.filter((name) => name.endsWith('.json')).map((name) => join(folder, name))) {
        const note = await noteOf(file)
        if (!note || there.has(note.repository)) continue
        await inTurn(note.repository, async () => {
          const begun = await stat(file).catch(nullIfMissing)
          if (begun && begun.mtimeMs < before) await rm(file, { force: true })
        })
      }
    },
  }
}

async function noteOf(file: string): Promise<Note | null> {
  const text = await readFile(file, 'utf8').catch(nullIfMissing)
  return text === null ? null : Note.parse(JSON.parse(text))
}

/** The repository of an image as the engine names it: without Docker Hub's name, and without that of official images. */
export const familiar = (image: string): string =>
  repositoryOf(image)
    .replace(/^(index\.)?docker\.io\//, '')
    .replace(/^library\//, '')
