// SPDX-License-Identifier: Apache-2.0
//! Builders of options that are a configuration, which a file may have: the feature `serde`.

/// A builder of a configuration, which may be read and written.
macro_rules! builder {
    ($(#[$text:meta])* $name:ident($raw:ident = $unset:ident), $kept:ty,
     $($field:ident: $kind:ty = $method:ident,)*) => {
        $crate::options::call_options! {
            $(#[$text])* $name($raw = $unset), $kept, $($field: $kind = $method,)*
        }

        $crate::configuration::settings!($name { $($field: $kind = $method,)* });
    };
}

pub(crate) use builder;

/// Options as a map of those that are set, by their names in the header.
#[cfg(feature = "serde")]
macro_rules! settings {
    ($name:ident { $($field:ident: $kind:ty = $method:ident,)* }) => {
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                $crate::options::Options::as_raw(self).map_err(serde::ser::Error::custom)?;
                // SAFETY: what pointers lead to is kept.
                let number = unsafe {
                    [$(<$kind as $crate::options::Setting<_>>::read(&self.0.$field).is_some()),*]
                };
                let number = number.iter().filter(|is_set| **is_set).count();
                let mut map = serializer.serialize_map(Some(number))?;
                // SAFETY: as above.
                $(if let Some(setting) = unsafe { <$kind as $crate::options::Setting<_>>::read(&self.0.$field) } {
                    let (name, setting) = (stringify!($field), $crate::serialize::Form(&setting));
                    serde::ser::SerializeMap::serialize_entry(&mut map, name, &setting)?;
                })*
                serde::ser::SerializeMap::end(map)
            }
        }

        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                $crate::serialize::read_settings(deserializer)
            }
        }

        impl $crate::serialize::Known for $name {
            const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];

            fn set<'de, A: serde::de::MapAccess<'de>>(
                self,
                name: &str,
                map: &mut A,
            ) -> std::result::Result<Self, A::Error> {
                match name {
                    $(stringify!($field) => $crate::serialize::next::<$kind, A>(map).map(|given| self.$method(given)),)*
                    _ => Err(serde::de::Error::unknown_field(name, Self::NAMES)),
                }
            }
        }

        $crate::serialize::written_as_it_is!($name);
    };
}

#[cfg(not(feature = "serde"))]
macro_rules! settings {
    ($name:ident { $($field:ident: $kind:ty = $method:ident,)* }) => {};
}

pub(crate) use settings;
