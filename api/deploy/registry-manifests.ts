import { z } from 'zod'

const Descriptor = z.looseObject({
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  size: z.int().nonnegative(),
})
const Image = z.looseObject({ config: Descriptor, layers: z.array(Descriptor).max(1_000) })
const Index = z.looseObject({ manifests: z.array(Descriptor).max(1_000) })

export interface ReadManifest {
  /** Of its layers, as they are stored. Null: the parts know it. */
  size_bytes: number | null
  /** The manifests of an index. */
  parts: string[]
}

/** Reads the manifest of an image, or an index of such. Null if it is neither. */
export function readManifest(bytes: Buffer): ReadManifest | null {
  const json = parsed(bytes)
  const index = Index.safeParse(json)
  if (index.success) return { size_bytes: null, parts: index.data.manifests.map(({ digest }) => digest) }
  const image = Image.safeParse(json)
  if (!image.success) return null
  const { config, layers } = image.data
  return { size_bytes: [config, ...layers].reduce((sum, { size }) => sum + size, 0), parts: [] }
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString())
  } catch {
    return null
  }
}
