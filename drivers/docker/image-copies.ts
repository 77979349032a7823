import { text } from 'node:stream/consumers'
import Docker from 'dockerode'
import type { CopyImage } from '../image-builds.ts'
import { connection } from './connection.ts'
import { asking, unless } from './errors.ts'

type WithEngineInside = <Result>(
  machineId: string,
  work: (engine: Docker) => Promise<Result>,
) => Promise<Result>

/** Copies images from the engine of a host into those of its machines. Only images that the operator has named. */
export const makeImageCopies =
  (dockerHost: string, withEngine: WithEngineInside): CopyImage =>
  (machineId, image, signal) =>
    asking(
      () =>
        withEngine(machineId, async (inside) => {
          if (await unless([404], inside.getImage(image).inspect())) return 'there'
          const source = new Docker(connection(dockerHost)).getImage(image)
          if (!(await unless([404], source.inspect()))) return 'absent'
          const archive = await source.get()
          signal?.throwIfAborted()
          await text(await inside.loadImage(archive))
          return 'copied'
        }),
      signal,
    )
