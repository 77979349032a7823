import { readdirSync, readFileSync } from 'node:fs'
import { type ComposeFile, readCompose } from '../compose/compose.ts'

// One-click templates: each is a compose file in files/, with what people read about it under `x-keelson`.

export interface ServiceTemplate {
  /** The `type` of a service that is made from it. */
  type: string
  title: string
  description: string
  category: string
  documentation: string
  /** What clients reach: each port of a container, in words. */
  exposes: { container: string; port: number; what: string }[]
  /** Variables that may be given; the platform generates the others. */
  variables: string[]
  text: string
}

interface Written {
  title: string
  description: string
  category: string
  documentation: string
  exposes: Record<string, Record<string, string>>
}

const folder = new URL('files/', import.meta.url)

function templateOf(fileName: string): ServiceTemplate {
  const text = readFileSync(new URL(fileName, folder), 'utf8')
  const file: ComposeFile = readCompose(text)
  const { title, description, category, documentation, exposes } = (
    file.text.value as { 'x-keelson': Written }
  )['x-keelson']
  return {
    type: fileName.replace(/\.yml$/, ''),
    title,
    description,
    category,
    documentation,
    exposes: Object.entries(exposes).flatMap(([container, ports]) =>
      Object.entries(ports).map(([port, what]) => ({ container, port: Number(port), what })),
    ),
    variables: file.variables.filter((name) => !name.startsWith('SERVICE_')),
    text,
  }
}

let read: ServiceTemplate[] | null = null

/** All templates, by their types in order. */
export const serviceTemplates = (): ServiceTemplate[] =>
  (read ??= readdirSync(folder)
    .filter((name) => name.endsWith('.yml'))
    .toSorted()
    .map(templateOf))

/** The template of this type. Undefined: there is none. */
export const templateOfType = (type: string): ServiceTemplate | undefined =>
  serviceTemplates().find((one) => one.type === type)
